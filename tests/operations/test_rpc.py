"""Calls of gRPC, declared as methods of an interface, and the table of a service that is made of them."""

from collections.abc import Iterator
from typing import Any

from keyplan.grpc_status import GrpcStatus
from keyplan.operations import ITSELF, Act, CallerKind, Change, Need, operations_of, rpc, rpcs_of, service_table
from keyplan.protobuf import Schema


class Images:
    @rpc(
        "ImageGetRequest",
        "Image",
        needs=Need(Act.READ, ITSELF),
        caller=CallerKind.SESSION,
        statuses=(GrpcStatus.NOT_FOUND,),
    )
    def image_get(self, **fields: Any) -> Any:
        """Return the image
        of a name.

        Further words.
        """
        raise NotImplementedError

    @rpc("ImageFindRequest", "Image", needs=Need(Act.READ, ITSELF))
    def image_find(self, **fields: Any) -> Iterator[Any]:
        """Stream images."""
        raise NotImplementedError


class MoreImages(Images):
    @rpc("ImageGetRequest", "Image", needs=Need(Act.WRITE, ITSELF), change=Change("write"))
    def image_make(self, **fields: Any) -> Any:
        """Make an image."""
        raise NotImplementedError

    def helper(self) -> None:
        """No operation."""


def test_a_call_is_what_its_method_and_its_decorator_say() -> None:
    get, find = rpcs_of(Images).values()
    assert (get.name, get.attribute, get.summary) == ("image_get", "image_get", "Return the image of a name.")
    assert (get.request, get.answer, get.caller) == ("ImageGetRequest", "Image", CallerKind.SESSION)
    assert (get.statuses, get.changes, get.is_stream) == ((GrpcStatus.NOT_FOUND,), False, False)
    assert (find.caller, find.is_stream) == (CallerKind.ANYBODY, True)


def test_calls_of_a_base_class_come_first() -> None:
    found = rpcs_of(MoreImages)
    assert list(found) == ["image_get", "image_find", "image_make"]
    assert found["image_make"].changes
    assert operations_of(MoreImages) == {}


def test_a_service_of_the_table_has_the_calls_of_an_interface() -> None:
    schema = Schema(
        "p",
        "ImageGetRequest: 1 name string\nImageFindRequest:\nImage: 1 name string",
        services={"Images": service_table(MoreImages)},
    )
    assert [(one.path, one.is_stream) for one in schema.services["Images"]] == [
        ("/p.Images/image_get", False),
        ("/p.Images/image_find", True),
        ("/p.Images/image_make", False),
    ]
