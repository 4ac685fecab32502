"""`hardened` judges nothing where a submission would run as the judge's own user with nothing between them."""

from __future__ import annotations

import os
import re

import pytest

from kbenv import Evaluator, get_protocol, load_problem
from kbenv.errors import IsolationError
from kbenv.sandbox.confine import isolation_level
from kbenv.sandbox.job import Job as Spec
from kbenv.sandbox.job import fault_error
from kbenv.sandbox.judge import job, place
from kbenv.sandbox.judge.faults import InfrastructureFault
from kbenv.sandbox.judge.place import UIDS, Place
from kbenv.sandbox.judge.setting import Setting
from kbenv.sandbox.zygote import Zygote

PROBLEM = load_problem("core/level1/relu")
SUBMISSION = re.sub(r"\bModel\b", "ModelNew", PROBLEM.source_for("cpu"))


def test_a_submission_with_nothing_around_it_is_not_even_loaded(tmp_path, monkeypatch):
    tmp_path.chmod(0o711)
    protocol = get_protocol("hardened", require_custom_kernel=False)
    spec = Spec(PROBLEM, "raise RuntimeError('it ran')\n" + SUBMISSION, protocol, "cpu", 1).to_message()
    uids = range(61200, 61200 + UIDS) if os.geteuid() == 0 else None
    monkeypatch.setattr(place, "isolation_level", lambda had: isolation_level({"uid": None, "namespaces": ["network"]}))
    with Zygote.start(str(tmp_path), contained=False) as zygote:
        with pytest.raises(InfrastructureFault, match=r"--allow-same-uid") as refused:
            job.Job(spec, Place(zygote, Setting.of(spec), uids), lambda _: None).run()
        assert isinstance(fault_error({"kind": refused.value.kind, "message": "", "detail": None}), IsolationError)
        spec["protocol"]["same_uid"] = True
        result = job.Job(spec, Place(zygote, Setting.of(spec), uids), lambda _: None).run()
    assert (result["status"], "it ran" in result["message"]) == ("LOAD_ERROR", True)


@pytest.mark.parametrize(("protocol", "allowed", "judged"), [("hardened", False, False), ("hardened", True, True),
                                                             ("verified", False, True)])  # fmt: skip
def test_who_may_be_judged_so_is_a_rule_of_the_protocol(protocol, allowed, judged):
    with Evaluator(protocol=protocol, device="cpu", sandbox="process", allow_same_uid=allowed) as evaluator:
        assert evaluator.protocol.same_uid is judged
