"""From a request to an answer."""

import signal

import pytest

from fakes.otlp_receiver import recorded
from ganeti import RELEASE, errors
from ganeti.backend import dispatch
from ganeti.http import EPOCH_HEADER, ERROR_HEADER, IGNORED_HEADER, RELEASE_HEADER
from ganeti.http.server import AuthorisedRequest
from ganeti.platform import master_epoch
from ganeti.storage import node_work
from ganeti.utils import tracing
from ganeti.wire import calls, json
from ganeti.wire import errors as wire_errors


def ask(handler, body=b"[1]", procedure="test_delay", **headers):
    request = AuthorisedRequest(procedure, body, "127.0.0.1", "AA", headers, False)
    return dispatch.Dispatcher({"test_delay": handler})(request)


def fail(error):
    def handler(duration_s):
        raise error

    return handler


def test_answer():
    response = ask(lambda duration_s: None)
    assert (response.status, response.body) == (200, b"[true,null]")


@pytest.mark.parametrize("procedure", ["", "version", "no_such", "../x", "x" * 5000])
def test_unknown_procedure(procedure):
    response = ask(lambda duration_s: None, procedure=procedure)
    assert response.status == 404
    assert len(response.body) < 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[1,2]", b'["x"]', b"\xff", b"[" * 99999])
def test_bad_body(body):
    response = ask(lambda duration_s: pytest.fail("called"), body)
    assert response.status == 400
    assert response.body


@pytest.mark.parametrize(
    "body", [b'["a\\u0000"]', b'[["x",{"k":"\\u0000"}]]', b'[{"\\u0000":1}]', b'["\0"]']
)
def test_a_zero_character_is_refused(body, caplog):
    """The system takes no such name of a file: it was an internal error with a traceback."""
    response = ask(lambda duration_s: pytest.fail("called"), body)
    assert response.status == 400
    assert b"zero character" in response.body or b"invalid JSON" in response.body
    assert "Traceback" not in caplog.text


def test_an_escaped_backslash_is_no_zero_character():
    call = b'["test","x\\\\u0000"]'
    assert dispatch._loaded(call) == ["test", "x\\u0000"]


@pytest.mark.parametrize(
    "error",
    [
        errors.HypervisorError("no such machine"),
        errors.OpPrereqError("bad", errors.ECODE_STATE),
        errors.CommandError(["x"], 1, "output"),
        FileNotFoundError(2, "No such file", "/x"),
    ],
)
def test_error_is_a_text_and_a_header(error):
    response = ask(fail(error))
    assert response.status == 200
    assert json.loads(response.body) == [False, str(error)]
    assert json.loads(response.headers[ERROR_HEADER]) == wire_errors.encode(error)


def test_header_is_one_line_of_ascii():
    response = ask(fail(errors.GenericError("two\r\nlines, ümlaut")))
    value = response.headers[ERROR_HEADER]
    assert value.isascii()
    assert value.isprintable()


def test_long_error_keeps_its_text():
    response = ask(fail(errors.GenericError("x" * 100_000)))
    assert ERROR_HEADER not in response.headers
    assert len(response.body) > 100_000


def test_unexpected_error_names_its_class(caplog):
    response = ask(fail(KeyError("uuid")))
    assert json.loads(response.body) == [False, "KeyError: 'uuid'"]
    assert "Traceback" in caplog.text


def test_broken_promise_of_a_handler():
    ok, text = json.loads(ask(lambda duration_s: "text").body)
    assert not ok
    assert "handler returned 'text'" in text


def test_quit():
    response = ask(fail(errors.QuitGanetiException(True, "bye")))
    assert (response.status, response.quit) == (200, True)
    assert json.loads(response.body) == [True, "bye"]


def test_hanging_handler_has_an_alarm():
    left = []
    ask(lambda duration_s: left.append(signal.getitimer(signal.ITIMER_REAL)[0]))
    # (1 + 5) s of the call, twice, and a minute.
    assert 60 < left[0] <= 72


# Work for a job


def ask_to_remove(handler, headers=None, disk=None):
    disk = disk or {"dev_type": "plain", "logical_id": ["vg", "lv"], "size": 1, "uuid": "disk-1"}
    request = AuthorisedRequest(
        "blockdev_remove", json.dumps([disk]).encode(), "127.0.0.1", "AA", headers or {}, False
    )
    return dispatch.Dispatcher({"blockdev_remove": handler})(request)


def test_a_call_is_recorded_with_its_job_and_master(here):
    seen = []
    master_epoch.claim(master_epoch.Epoch(3, "uuid"))
    headers = {"x-ganeti-epoch": "3 uuid", "x-ganeti-work": "12 abcdef"}
    response = ask_to_remove(lambda disk: seen.extend(node_work.running()), headers)
    assert response.body == b"[true,null]"
    (work,) = seen
    assert (work.job, work.epoch, work.token) == (12, "3 uuid", "abcdef")
    assert (work.call, work.disks) == ("blockdev_remove", ("disk-1",))
    assert node_work.running() == []


def test_callers_without_a_job_are_served(here):
    seen = []
    assert ask_to_remove(lambda disk: seen.extend(node_work.running())).status == 200
    assert ask_to_remove(lambda disk: None, {"x-ganeti-work": "- ab"}).status == 200
    assert seen[0].job is None


@pytest.mark.parametrize("header", ["", "12", "x ab", "0 ab", "12 ", "12 ../x", "-1 ab", "12 AB"])
def test_a_malformed_job_is_refused(here, header):
    response = ask_to_remove(lambda disk: pytest.fail("called"), {"x-ganeti-work": header})
    assert response.status == 400
    assert b"must have a job and the name of a call" in response.body


def test_a_second_job_is_refused_with_the_name_of_the_first(here):
    def first(disk):
        response = ask_to_remove(lambda disk: pytest.fail("called"), {"x-ganeti-work": "13 bb"})
        ok, text = json.loads(response.body)
        assert not ok
        assert "job 12 is running on this instance or disk: removal of a disk" in text

    assert ask_to_remove(first, {"x-ganeti-work": "12 aa"}).body == b"[true,null]"


def test_a_failed_call_leaves_no_record(here):
    def broken(disk):
        raise errors.BlockDeviceError("no")

    assert json.loads(ask_to_remove(broken).body) == [False, "no"]
    assert node_work.running() == []


def test_a_master_which_is_replaced_meanwhile_begins_nothing(here, monkeypatch):
    """The record is made first, then the epoch is checked again."""
    make = node_work.Serving.__enter__

    def late(self):
        make(self)
        master_epoch.claim(master_epoch.Epoch(4, "other"))

    monkeypatch.setattr(node_work.Serving, "__enter__", late)
    headers = {"x-ganeti-epoch": "3 uuid", "x-ganeti-work": "12 abcdef"}
    response = ask_to_remove(lambda disk: pytest.fail("called"), headers)
    assert response.status == 403
    assert response.headers[EPOCH_HEADER] == "4 other"
    assert node_work.running() == []


#: Calls about instances and disks which change neither.
ONLY_ASKS = {
    "all_instances_info", "bdev_sizes", "blockdev_find", "blockdev_find_multi",
    "blockdev_getdimensions",
    "blockdev_getmirrorstatus", "blockdev_getmirrorstatus_multi", "blockdev_reachable_multi",
    "blockdev_snapshot_list",
    "console_log_read", "drbd_helper", "drbd_needs_activation", "drbd_wait_sync",
    "directory_space", "directory_seen", "drbd_waiting", "export_details",
    "export_find", "export_info",
    "export_list", "export_sizes", "extstorage_diagnose", "guest_details", "guests_usage",
    "helper_status",
    "hotplug_supported",
    "hypervisor_validate_params", "impexp_status", "instance_get_migration_status",
    "instance_info", "instance_list", "instance_migratable", "lv_list", "migration_info",
    "node_volumes", "os_diagnose", "os_validate", "storage_list", "vg_list",
}  # fmt: skip
#: Calls which change what belongs to no instance, or which end the work of others, or let it go on.
OF_NO_INSTANCE = {
    "console_log_remove", "directory_mark", "directory_unmark", "drbd_resume_io", "export_remove",
    "impexp_abort", "impexp_cleanup",
    "instance_metadata_modify",
    "storage_execute", "storage_modify", "x509_cert_create", "x509_cert_remove",
}  # fmt: skip


def test_every_call_which_changes_an_instance_is_recorded():
    named = {
        call.name
        for module in (calls.instance, calls.storage, calls.backup)
        for call in vars(module).values()
        if isinstance(call, calls.Call) and not call.work
    }
    assert named == ONLY_ASKS | OF_NO_INSTANCE


def test_spans_of_traced_calls(monkeypatch):
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    seen = []

    def handler(duration_s):
        seen.append(tracing.current())
        if duration_s == 2:
            raise errors.HypervisorError("no such machine")

    def ask_with(headers, body):
        request = AuthorisedRequest("test_delay", body, "127.0.0.1", "AA", headers, False)
        return dispatch.Dispatcher({"test_delay": handler})(request)

    with recorded(monkeypatch) as receiver:
        tracing.set_up("ganeti-noded")
        assert ask_with({"traceparent": parent}, b"[1]").body == b"[true,null]"
        ask_with({"traceparent": parent}, b"[2]")
        for headers in ({}, {"traceparent": "x"}):
            ask_with(headers, b"[1]")
        tracing.flush()
        first, second = receiver.spans
        assert first.name == "node test_delay" and first.parent == "b" * 16
        assert [first.failed, second.failed] == [False, True]
        assert seen[0].split("-")[2] == first.identity and seen[2:] == ["", ""]


NEXT = {"x-ganeti-release": "9.9.0"}


def test_a_caller_of_another_release_learns_the_release_and_what_is_ignored():
    response = ask(lambda duration_s: None, b"[1, null]", **NEXT)
    assert (response.status, response.headers) == (200, {RELEASE_HEADER: RELEASE})
    handler = dispatch.Dispatcher({"node_verify": lambda checks, cluster_name, all_hvparams: {}})
    body = b'[{"x": 1}, "c", {}]'
    response = handler(AuthorisedRequest("node_verify", body, "127.0.0.1", "AA", NEXT, False))
    assert json.loads(response.headers[IGNORED_HEADER]) == ["checks/x"]


@pytest.mark.parametrize("headers", [{}, {"x-ganeti-release": RELEASE}])
def test_a_caller_of_this_release_needs_no_headers(headers):
    assert ask(lambda duration_s: None, **headers).headers == {}
    assert ask(lambda duration_s: None, b"[1, null]", **headers).status == 400


@pytest.mark.parametrize(
    ("procedure", "body", "status"),
    [("no_such", b"[]", 404), ("test_delay", b"[1, 2]", 400), ("test_delay", b"[]", 400)],
)
def test_what_another_release_asks_in_vain_names_both_releases(procedure, body, status):
    response = ask(lambda duration_s: pytest.fail("called"), body, procedure, **NEXT)
    assert response.status == status
    assert f"the caller has release 9.9.0, this node {RELEASE}" in response.body.decode()
    assert response.headers == {RELEASE_HEADER: RELEASE}
