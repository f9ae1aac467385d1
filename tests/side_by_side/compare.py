# SPDX-License-Identifier: Apache-2.0
"""Two runs of one program, case by case."""

import dataclasses
import importlib.util
import pathlib

EQUAL, DIFFERS, SKIPPED, UNSTEADY = "yes", "no", "skipped", "native differs from itself"


@dataclasses.dataclass
class Row:
    entry: str
    case: str          # empty for the program as a whole
    result: str        # EQUAL, or another of these
    why: str           # what differs, what is missing
    native_s: float
    gpuloom_s: float
    unsupported: list  # only with the program's first row

    def good(self):
        return self.result in (EQUAL, SKIPPED, UNSTEADY)


def parse_cases(output):
    """({name: (status, value, seconds, message)}, the process line's fields or None)."""
    cases, process = {}, None
    for line in output.splitlines():
        fields = line.split("\t")
        if fields[0] == "process" and len(fields) == 3:
            process = fields[1:]
        elif len(fields) == 5 and fields[1] in ("ok", "failed", "skipped"):
            try:
                cases[fields[0]] = (fields[1], fields[2], float(fields[3]), fields[4])
            except ValueError:
                continue
    return cases, process


def _ended(ran):
    if ran.status == "time limit":
        return "time limit"
    return f"status {ran.status}" if ran.status >= 0 else f"signal {-ran.status}"


def _last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def _traces(entry, gpuloom):
    """A row when a process of the tenant held NVIDIA's device or library."""
    found = gpuloom.devices + gpuloom.libraries
    if entry.kind == "cases":
        process = parse_cases(gpuloom.output)[1]
        found += [field for field in process or [] if field != "none"]
    if not found:
        return []
    return [Row(entry.name, "the tenant holds no NVIDIA device and no NVIDIA library", DIFFERS, ", ".join(sorted(set(found))), 0, 0, [])]


def _compare_output(entry, native, gpuloom, again):
    mine, other = entry.comparable(native.output), entry.comparable(gpuloom.output)
    row = Row(entry.name, "", EQUAL, "", native.seconds, gpuloom.seconds, gpuloom.unsupported())
    if (native.status, mine) != (gpuloom.status, other):
        row.result = DIFFERS
        if native.status != gpuloom.status:
            row.why = f"native {_ended(native)}, gpuloom {_ended(gpuloom)}: "
        row.why += _last_line(gpuloom.output) or _last_line(gpuloom.errors)
        if again and (again.status, entry.comparable(again.output)) != (native.status, mine):
            row.result = UNSTEADY
    elif native.status == 127 and not native.output:
        row.result, row.why = DIFFERS, f"cannot start: {native.errors}"
    elif native.status != 0:
        row.why = f"natively it fails, too: {_ended(native)}, {_last_line(native.output)}"
    return [row]


def _compare_cases(entry, native, gpuloom, again):
    mine, _ = parse_cases(native.output)
    other, other_process = parse_cases(gpuloom.output)
    second = parse_cases(again.output)[0] if again else {}
    rows = [Row(entry.name, "", EQUAL, "", native.seconds, gpuloom.seconds, gpuloom.unsupported())]
    for name, (status, value, seconds, message) in mine.items():
        row = Row(entry.name, name, EQUAL, "", seconds, 0, [])
        rows.append(row)
        if name not in other:
            row.result, row.why = DIFFERS, f"did not come to it: {_ended(gpuloom)}"
            continue
        other_status, other_value, row.gpuloom_s, other_message = other[name]
        if (status, value) == (other_status, other_value):
            row.why = {"ok": "", "skipped": message, "failed": f"natively it fails, too: {value}: {message}"}[status]
            row.result = SKIPPED if status == "skipped" else EQUAL
        elif again and name in second and second[name][:2] != (status, value) and other_status == "ok":
            row.result, row.why = UNSTEADY, f"native {value} and {second[name][1]}, gpuloom {other_value}"
        else:
            row.result = DIFFERS
            row.why = f"native {status} {value} {message if status == 'failed' else ''}; " \
                      f"gpuloom {other_status} {other_value} {other_message}"
    whole = rows[0]
    if not mine:
        whole.result, whole.why = DIFFERS, f"natively no case came: {_ended(native)}: {_last_line(native.errors)}"
    elif gpuloom.status == native.status:
        pass
    elif other_process is not None and all(row.result != DIFFERS for row in rows[1:]):
        whole.result, whole.why = DIFFERS, f"after the last case: native {_ended(native)}, gpuloom {_ended(gpuloom)}"
    else:
        whole.result = DIFFERS
        whole.why = f"native {_ended(native)}, gpuloom {_ended(gpuloom)}"
        if other_process is None:
            whole.why += f": {_last_line(gpuloom.errors)}"
    return rows


def _wrong_calls():
    """compare_wrong_calls.py: beside this folder in a pack, in tests/conformance in the source."""
    here = pathlib.Path(__file__).resolve().parent.parent
    path = next(p for p in (here / "compare_wrong_calls.py", here / "conformance/compare_wrong_calls.py") if p.exists())
    spec = importlib.util.spec_from_file_location("compare_wrong_calls", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compare_answers(entry, native, gpuloom, _):
    tool = _wrong_calls()
    accepted = tool.parse_accepted(pathlib.Path(entry.accepted).read_text()) if entry.accepted else []
    golden, got = tool.parse_answers(native.output), tool.parse_answers(gpuloom.output)
    equal, known, different = tool.compare(golden, got, accepted)
    row = Row(entry.name, "", DIFFERS if different or not equal else EQUAL,
              f"{len(equal)} answers equal, {len(known)} differ with a reason, {len(different)} differ", native.seconds,
              gpuloom.seconds, gpuloom.unsupported())
    return [row] + [Row(entry.name, case, DIFFERS, f"native {wanted}, gpuloom {answer or 'missing'}", 0, 0, [])
                    for case, wanted, answer, _ in different]


def compare(entry, native, gpuloom, again=None):
    """The rows of one entry, the program as a whole first. `again` is a second native run, or None."""
    how = {"output": _compare_output, "cases": _compare_cases, "answers": _compare_answers}[entry.kind]
    return how(entry, native, gpuloom, again) + _traces(entry, gpuloom)
