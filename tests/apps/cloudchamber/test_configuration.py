"""cloudchamber.yaml as the original reads it, the environment's overrides, and what is refused."""

from pathlib import Path

import pytest

from keyplan.apps.cloudchamber import read_configuration
from keyplan.errors import InvalidInputError

SHIPPED = """\
store:
  connectTimeout: 5
  requesttimeout: 7
  EtcdService: {hostname: etcd.example, port: 4001}
  test:
    UseTestNamespace: 1
    useUniqueInstance: 0
    PreCleanStore: true
webServer:
  systemAccount: admin
  systemAccountPassword: adminPassword
  fe: {hostname: localhost, port: 8080}
simSupport:
  StepperPolicy: Manual
delays:
  inventory:
    booting: {low: 5, high: 8}
"""


def written(folder: Path, text: str) -> Path:
    (folder / "cloudchamber.yaml").write_text(text)
    return folder


def test_keys_stand_in_any_case_and_truths_may_be_numbers(tmp_path: Path) -> None:
    read = read_configuration(written(tmp_path, SHIPPED), {})
    assert read.store.url == "etcd://etcd.example:4001?timeout=7"
    assert (read.store.connect_timeout_seconds, read.store.request_timeout_seconds) == (5, 7)
    assert (read.store.use_test_namespace, read.store.use_unique_instance, read.store.pre_clean_store) == (
        True,
        False,
        True,
    )
    assert read.web_server.system_account == "admin"
    assert read.values["simSupport.StepperPolicy"] == "manual"


def test_the_real_defaults_stand_without_a_file(tmp_path: Path) -> None:
    read = read_configuration(tmp_path, {})
    assert read.store.url == "etcd://localhost:2379?timeout=5"
    assert read.store.use_test_namespace is False
    assert (read.web_server.session_inactivity_seconds, read.web_server.active_sessions_max) == (3600, 100)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no settings found"):
        read_configuration(tmp_path / "other.yaml", {})


def test_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    environment = {
        "KEYPLAN_STORE_ENDPOINTS": "a:1,b:2",
        "KEYPLAN_STORE_USE_TEST_NAMESPACE": "true",
        "KEYPLAN_STORE_USE_UNIQUE_INSTANCE": "1",
        "KEYPLAN_STORE_PRE_CLEAN_STORE": "0",
        "KEYPLAN_STORE_TEST_INSTANCE": "night",
        "KEYPLAN_WEB_SERVER_ACTIVE_SESSION_LIMIT": "3",
    }
    read = read_configuration(written(tmp_path, SHIPPED), environment)
    assert read.store.url == "etcd://a:1,b:2?timeout=7"
    assert (read.store.use_unique_instance, read.store.pre_clean_store, read.store.test_instance) == (
        True,
        False,
        "night",
    )
    assert read.web_server.active_sessions_max == 3


def test_cleaning_and_an_instance_of_its_own_exclude_each_other(tmp_path: Path) -> None:
    """AC-19: before any store is opened."""
    with pytest.raises(InvalidInputError) as refused:
        read_configuration(written(tmp_path, SHIPPED), {"KEYPLAN_STORE_USE_UNIQUE_INSTANCE": "1"})
    assert "both UseUniqueInstance and PreCleanStore are enabled" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("store: {conectTimeout: 5}", "there is no key 'conectTimeout'"),
        ("stores: {}", "there is no key 'stores'"),
        ("store: {etcdService: {port: 65536}}", "port is 65536; it must be from 0 to 65535"),
        ("store: {connectTimeout: soon}", "a whole number is needed"),
        ("store: {Test: {UseTestNamespace: maybe}}", "true or false is needed"),
        ("webServer: {activeSessionLimit: 0}", "activeSessionLimit is 0; it must be from 1"),
        ("webServer: {systemAccount: ''}", "systemAccount must contain at least 1 character"),
        ("simSupport: {StepperPolicy: hasty}", "StepperPolicy must be one of manual, automatic"),
        ("simSupport: {TraceRetentionLimit: 99}", "it must be from 100"),
        ("delays: {inventory: {booting: {low: 9, high: 8}}}", "delays.inventory.booting.high is 8, less than"),
        ("store: 5", "store should hold keys and values, not a single value"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_configuration(written(tmp_path, text), {})
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("KEYPLAN_STORE_PRE_CLEAN_STORE", "perhaps"),
        ("KEYPLAN_STORE_CONNECT_TIMEOUT", "-1"),
        ("KEYPLAN_WEB_SERVER_SYSTEM_ACCOUNT", ""),
        ("KEYPLAN_SIM_SUPPORT_STEPPER_POLICY", "hasty"),
    ],
)
def test_a_wrong_override_names_its_variable(tmp_path: Path, variable: str, text: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_configuration(tmp_path, {variable: text})
    assert variable in str(refused.value)


def test_the_password_is_not_shown(tmp_path: Path) -> None:
    read = read_configuration(written(tmp_path, SHIPPED), {})
    assert read.shown()["webServer.systemAccountPassword"] == "********"
    assert read.shown()["webServer.systemAccount"] == "admin"
    assert "adminPassword" not in repr(read.web_server)
