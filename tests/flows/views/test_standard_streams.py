"""Standard streams that are closed or full: results are complete or an error, messages may get lost."""

import subprocess
import sys

import pytest

REPRO = f"{sys.executable} -c 'from flows.cli import main; main()'"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("redirected", "reason"), [(">&-", "Bad file descriptor"), ("> /dev/full", "No space left on device")]
)
@pytest.mark.parametrize("words", ["show", "--help", "plan demo --json"])
def test_results_that_cannot_be_written_are_an_error(words: str, redirected: str, reason: str) -> None:
    done = shell(f"{REPRO} {words} {redirected}")
    sentence = f"repro: the results cannot be written to stdout: {reason}; open it or redirect it to a file\n"
    assert (done.returncode, done.stderr) == (1, sentence)


@pytest.mark.parametrize("redirected", ["2>&-", "2> /dev/full", "2>&- <&-", "2> /dev/full <&-"])
def test_messages_that_cannot_be_written_are_dropped(redirected: str) -> None:
    done = shell(f"{REPRO} run no-such-run {redirected}")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
    done = shell(f"{REPRO} history --json {redirected}")
    assert (done.returncode, done.stdout) == (0, '{"runs": []}\n')


def test_results_are_utf_8_whatever_the_locale_is_and_without_a_reader_no_stdout_is_needed() -> None:
    assert shell(f"{REPRO} status --close >&- <&-").returncode == 0
    other_locale = "LC_ALL=C PYTHONIOENCODING=ascii PYTHONUTF8=0"
    assert shell(f"{other_locale} {REPRO} show").stdout == shell(f"{REPRO} show").stdout
