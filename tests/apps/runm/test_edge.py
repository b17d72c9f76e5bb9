"""Who may come in at all: known by certificates, guesses, what is told of refusals, reflection, and how many there may be."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any, Final
from uuid import UUID

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from keyplan.access import AccessFile
from keyplan.apps.runm import cli_client
from keyplan.apps.runm.authorizer import Authorizer
from keyplan.apps.runm.client import Connection, RunmClient
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.dispatch import Dispatcher
from keyplan.apps.runm.process import ServeChoices, run_server
from keyplan.apps.runm.records import Object
from keyplan.apps.runm.server import Listening, serving
from keyplan.apps.runm.settings import ServeSettings
from keyplan.apps.runm.start import ensure_started
from keyplan.apps.runm.wire_table import messages
from keyplan.errors import InvalidInputError
from keyplan.server import Role, Token, rpc_address, rpc_certificate, rpc_token
from keyplan.store import Store
from tests.apps.runm.client import SW, WEST, Client, refused
from tests.apps.runm.principals import PRINCIPALS, Guarded, guarded
from tests.apps.runm.principals import token_of as token_of_principal
from tests.servers.authority import Authority

TOKEN: Final = "an-admin-token-of-a-test-0123456789"
TOKENS: Final = (Token.of_text(Role.ADMIN, "ada", TOKEN),)


class Hand:
    """A clock that is put forward by hand."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds

    def epoch(self) -> bytes:
        return b"test"


@contextmanager
def by_tokens(store: Store) -> Iterator[str]:
    """A service that knows its callers by tokens alone, and for which no time passes; gives its address."""
    deployment = Deployment(store, clock=Hand())
    ensure_started(deployment)
    with serving(deployment, Listening(("127.0.0.1:0",)), TOKENS) as running:
        yield running.addresses[0]


@pytest.fixture
def running(lmdb_store: Store, tmp_path: Path) -> Iterator[Guarded]:
    with guarded(lmdb_store, tmp_path) as found:
        yield found


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.getMessage().startswith("request refused")]


@pytest.fixture(autouse=True)
def _logged() -> Iterator[None]:
    """Let pytest see the log, whatever another test has set up."""
    logger = logging.getLogger("keyplan.runm")
    before = logger.propagate
    logger.propagate = True
    yield
    logger.propagate = before


# ---- what a request says of who makes it ---------------------------------------------------------------------------------


class Given:
    def __init__(self, peer: str = "", metadata: Any = None, **found: list[bytes]) -> None:
        self._peer, self._metadata, self._found = peer, metadata, found

    def invocation_metadata(self) -> Any:
        return self._metadata

    def auth_context(self) -> Any:
        return self._found

    def peer(self) -> str:
        return self._peer


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.7:50000", "192.0.2.7"),
        ("ipv6:%5B2001:db8::7%5D:50000", "2001:db8::7"),
        ("ipv6:[::1]:50000", "::1"),
        ("unix:/run/runm.sock", "unix"),
        ("unix:", "unix"),
    ],
)
def test_an_address_is_that_of_the_other_end_without_its_port(peer: str, address: str) -> None:
    assert rpc_address(Given(peer)) == address


def test_a_token_is_a_bearers_and_what_else_says_who_asks_is_a_wrong_one() -> None:
    assert rpc_token(Given()) is None
    assert rpc_token(Given(metadata=(("authorization", "Bearer  abc "),))) == "abc"
    assert rpc_token(Given(metadata=(("authorization", "Basic abc"),))) == ""
    assert rpc_token(Given(metadata=(("authorization", b"bearer abc"),))) == "abc"


def test_a_certificate_has_the_names_that_an_access_file_writes() -> None:
    shown = Given(
        transport_security_type=[b"ssl"],
        x509_subject=[rb"CN=Z\C3\BCrich\, Ost,O=\#1"],
        peer_dns=[b"Shop.Example"],
        peer_ip=[b"2001:0db8::0001"],
        peer_uri=[b"spiffe://Shop/A"],
        peer_email=[b"Ada@example.org"],
    )
    assert rpc_certificate(shown) == (
        "CN=Z\u00fcrich\\, Ost,O=\\#1",
        ("DNS:shop.example", "URI:spiffe://Shop/A", "email:Ada@example.org", "IP:2001:db8::1"),
    )
    assert rpc_certificate(Given(transport_security_type=[b"insecure"], x509_subject=[b"CN=shop"])) is None
    assert rpc_certificate(Given(transport_security_type=[b"ssl"])) is None


# ---- by certificates ---------------------------------------------------------------------------------------------------


def test_a_client_is_known_by_its_certificate_and_one_without_has_no_connection(
    lmdb_store: Store, tmp_path: Path, authority: Authority
) -> None:
    authority.issue("named", "subjectAltName=DNS:shop.example\nextendedKeyUsage=clientAuth\n")
    authority.issue("stranger", "extendedKeyUsage=clientAuth\n")
    authority.issue("spelled", "extendedKeyUsage=clientAuth\n", subject="/O=Bahn, S\u00fcd/CN=Z\u00fcrich")
    path = tmp_path / "access.toml"
    path.touch(mode=0o600)
    everything = 'read = ["everything"]\nwrite = ["everything"]\nadminister = ["everything"]\n'
    path.write_text(
        f'[principals.named]\ncertificates = ["DNS:shop.example"]\n{everything}'
        f'[principals.spelled]\ncertificates = ["subject:CN=Z\u00fcrich,O=Bahn\\\\, S\u00fcd"]\n{everything}'
        f'[principals.reader]\ncertificates = ["subject:CN=client"]\nread = ["everything"]\n'
    )
    deployment = Deployment(lmdb_store)
    ensure_started(deployment)
    own = (authority.certificate("server"), authority.key("server"))
    listening = Listening(("127.0.0.1:0",), own, authority.ca)

    with ExitStack() as stack:
        running = stack.enter_context(
            serving(deployment, listening, access=AccessFile(path, monotonic=Hand().monotonic))
        )
        port = int(running.addresses[0].rpartition(":")[2])

        def client(name: str | None, token: str = "") -> RunmClient:
            shown = (authority.certificate(name), authority.key(name)) if name else None
            connection = Connection("127.0.0.1", port, "", "p", WEST, (), token, authority.ca, shown)
            return stack.enter_context(RunmClient(connection))

        client("named").metadata.partition_create(partition={"name": "west", "uuid": WEST})
        assert client("spelled").metadata.partition_get_by_uuid(uuid=WEST).name == "west"
        assert client("client").metadata.partition_get_by_uuid(uuid=WEST).name == "west"
        with refused("PERMISSION_DENIED"):
            client("client").metadata.partition_create(partition={"name": "east"})
        with refused("UNAUTHENTICATED"):
            client("stranger").metadata.partition_get_by_uuid(uuid=WEST)
        # A token that is wrong is looked at first, and hides the certificate.
        with refused("UNAUTHENTICATED"):
            client("named", "wrong".ljust(43, "0")).metadata.partition_get_by_uuid(uuid=WEST)
        with refused("UNAVAILABLE"):
            client(None).metadata.partition_get_by_uuid(uuid=WEST)


def test_an_authority_that_is_none_is_refused_with_its_file(
    lmdb_store: Store, tmp_path: Path, authority: Authority
) -> None:
    own = (authority.certificate("server"), authority.key("server"))
    for file, words in (
        (authority.key("client"), "has no certificates in PEM"),
        (tmp_path / "none.pem", "No such file"),
    ):
        listening = Listening(("127.0.0.1:0",), own, file)
        with pytest.raises(InvalidInputError, match=words) as caught, serving(Deployment(lmdb_store), listening):
            pass
        assert caught.value.facts["source"] == "--tls-client-ca"


@pytest.mark.parametrize("pair", [("client", "server"), ("", "server"), ("server", "")])
def test_a_certificate_that_is_none_is_not_called_an_address_that_is_taken(
    lmdb_store: Store, tmp_path: Path, authority: Authority, pair: tuple[str, str]
) -> None:
    (rubbish := tmp_path / "rubbish.pem").write_text("rubbish")
    chain = authority.certificate(pair[0]) if pair[0] else rubbish
    key = authority.key(pair[1]) if pair[1] else rubbish
    listening = Listening(("127.0.0.1:0",), (chain, key))
    with pytest.raises(InvalidInputError, match="with its key") as caught, serving(Deployment(lmdb_store), listening):
        pass
    assert caught.value.facts["source"] == "--use-tls"


@pytest.mark.parametrize("given", [{"RUNM_METADATA_USE_TLS": "true"}, {}])
def test_an_authority_without_an_access_file_or_without_tls_is_refused(tmp_path: Path, given: dict[str, str]) -> None:
    access = tmp_path / "access.toml"
    access.touch(mode=0o600)
    choices = ServeChoices(access=None if given else access, tls_client_authority=tmp_path / "ca.pem")
    with pytest.raises(InvalidInputError, match="give --access and --use-tls"):
        run_server(ServeSettings.of({}, given), choices, Event(), announce=print)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--tls-certificate", "{certificate}"), "give --tls-key and --tls-authority with it"),
        (("--tls-key", "{key}"), "give --tls-key and --tls-authority with it"),
        (("--tls-certificate", "{certificate}", "--tls-key", "{key}"), "give --tls-key and --tls-authority with it"),
        (("--tls-authority", "none.pem"), "none.pem: No such file"),
        (("--tls-authority", "{ca}", "--tls-certificate", "none.crt", "--tls-key", "{key}"), "none.crt: No such file"),
    ],
)
def test_half_a_certificate_and_one_that_is_not_there_are_told(
    authority: Authority, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], told: str
) -> None:
    files = {"ca": authority.ca, "certificate": authority.certificate("client"), "key": authority.key("client")}
    words = [word.format(**files) for word in options]
    assert cli_client.main([*words, "partition", "list"]) == 1
    assert told in capsys.readouterr().err


# ---- guesses and refusals ------------------------------------------------------------------------------------------------


def test_many_wrong_tokens_are_not_looked_at_any_more_and_those_that_were_right_are(lmdb_store: Store) -> None:
    with by_tokens(lmdb_store) as address, ExitStack() as stack:

        def client(token: str) -> Client:
            made = Client(address, token=token)
            stack.callback(made.channel.close)
            return made

        ada = client(TOKEN)
        ada.partition_create(partition={"name": "west", "uuid": WEST})
        statuses = [client(f"wrong-{number}".ljust(40, "0")).raw("bootstrap", b"") for number in range(25)]
        codes = [one.code().name for one in statuses if isinstance(one, grpc.RpcError)]
        assert codes == ["UNAUTHENTICATED"] * 20 + ["RESOURCE_EXHAUSTED"] * 5
        # What was right before goes on.
        assert ada.object_type_find(SW)


def test_a_refused_call_has_one_line_that_says_who_what_and_why(
    running: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        with refused("PERMISSION_DENIED"):
            running.by("acme").partition_create(partition={"name": "x"})
        (line,) = lines_of(caplog)
        for fact in ("partition_create", "caller 'acme'", "client '127.0.0.1'", "PERMISSION_DENIED", "no line grants"):
            assert fact in line
        caplog.clear()
        with refused("UNAUTHENTICATED"):
            Client(running.address, token="swordfish".ljust(40, "0")).partition_find({})
        (line,) = lines_of(caplog)
        assert "UNAUTHENTICATED" in line
        assert "swordfish" not in caplog.text


def test_a_flood_of_refused_calls_has_few_lines(running: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    acme = running.by("acme")
    with caplog.at_level(logging.WARNING):
        for _ in range(60):
            with refused("PERMISSION_DENIED"):
                acme.partition_create(partition={"name": "x"})
    # Twenty at once, and one more each three seconds of however long it took.
    assert 20 <= len(lines_of(caplog)) < 60


# ---- reflection ----------------------------------------------------------------------------------------------------------


def described(address: str, token: str = "") -> set[str]:
    with grpc.insecure_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        (answer,) = stub.ServerReflectionInfo(asked, metadata=metadata, timeout=60)
        return {one.name for one in answer.list_services_response.service}


def test_with_tokens_reflection_is_for_who_has_one(lmdb_store: Store) -> None:
    with by_tokens(lmdb_store) as address:
        assert "runm.RunmMetadata" in described(address, TOKEN)
        for token in ("", "wrong".ljust(40, "0")):
            with refused("UNAUTHENTICATED"):
                described(address, token)


def test_without_tokens_reflection_is_for_everybody(lmdb_store: Store) -> None:
    deployment = Deployment(lmdb_store)
    ensure_started(deployment)
    with serving(deployment, Listening(("127.0.0.1:0",))) as running:
        assert "runm.RunmMetadata" in described(running.addresses[0])


def test_streams_of_reflection_are_so_many_at_once(lmdb_store: Store) -> None:
    deployment = Deployment(lmdb_store)
    ensure_started(deployment)
    with serving(deployment, Listening(("127.0.0.1:0",))) as running, ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(running.addresses[0]))
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        streams = [Held(stub, question) for _ in range(8)]
        for one in streams:
            stack.callback(one.close)
            assert next(one.answers).list_services_response.service
        with refused("RESOURCE_EXHAUSTED"):
            described(running.addresses[0])
        streams[0].close()
        found: set[str] = set()
        while not found:  # Until the server knows that it is gone.
            with suppress(grpc.RpcError):
                found = described(running.addresses[0])


class Held:
    """A stream of reflection with one question, which its client keeps open."""

    def __init__(self, stub: Any, question: Any) -> None:
        self._is_over = Event()

        def questions() -> Iterator[Any]:
            yield question
            self._is_over.wait(60)

        self.answers = stub.ServerReflectionInfo(questions(), timeout=60)

    def close(self) -> None:
        self._is_over.set()


# ---- streams -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["partition_find", "object_find"])
def test_a_list_that_is_being_sent_ends_when_its_caller_may_have_it_no_more(running: Guarded, call: str) -> None:
    clock, sent = Hand(), 0
    access = AccessFile(running.path, monotonic=clock.monotonic)
    deployment = Deployment(running.store, clock=clock)
    dispatcher = Dispatcher(deployment, Event(), Authorizer(deployment, access=access))
    context = Context(("authorization", f"Bearer {token_of_principal('root')}"))
    handlers: list[Any] = [*dispatcher.handlers()]
    found = [one.service(Details(f"/runm.RunmMetadata/{call}")) for one in handlers]
    (method,) = [one for one in found if one is not None]
    session = {"user": "root", "project": "p1", "partition": WEST}
    request = messages.PartitionFindRequest(session=session).SerializeToString()
    if call == "object_find":  # by its short way
        for number in (1, 2):
            image = Object(UUID(WEST), "runm.image", UUID(int=number), f"n{number}", "p1", (), ("t",))
            deployment.runm.objects.insert(image.uuid, image)
        given = {"object_type_filter": {"code_filter": {"code": "runm.image"}}, "tag_filter": {"require": ["t"]}}
        request = messages.ObjectFindRequest(session=session, any=[given]).SerializeToString()

    def take_all() -> None:
        nonlocal sent
        for _ in method.unary_stream(request, context):
            sent += 1
            running.change({name: one for name, one in PRINCIPALS.items() if name != "root"})
            clock.seconds += 60

    with pytest.raises(AbortedError) as caught:
        take_all()
    assert (sent, caught.value.args[0]) == (1, grpc.StatusCode.UNAUTHENTICATED)
    assert bool(deployment.ahead.finds) is (call == "object_find")


class AbortedError(Exception):
    pass


class Details:
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


class Context:
    """What a handler asks of a call, without one."""

    def __init__(self, *metadata: tuple[str, str]) -> None:
        self._metadata = metadata

    def invocation_metadata(self) -> Any:
        return self._metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def peer(self) -> str:
        return "ipv4:127.0.0.1:5"

    def is_active(self) -> bool:
        return True

    def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise AbortedError(code, text)
