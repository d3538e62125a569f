"""Habits of the command line, as transcripts: words that were meant otherwise."""


def test_unknown_words_are_told_what_was_meant(transcript):
    box = transcript.run("create").stdout.decode().strip()
    for words in [
        ["runn", "--", "true"],
        ["images"],
        ["build", "."],
        ["stop", box],
        ["ls", "--jsn"],
        ["run", "--template", "bsae", "--", "true"],
        ["template", "inspect", "bsae"],
        ["template", "rm", "bsae"],
    ]:
        transcript.run(*words)
    slip = box[:8] + box[9] + box[8] + box[10]
    told = transcript.server.cli("exec", slip, "--", "true").stderr.decode()
    assert f"did you mean {box}?" in told or box.startswith(slip), told


def test_words_of_a_shell_are_told_how_to_reach_one(transcript):
    for words in [
        ["ls | wc -l"],
        ["cd", "/tmp", "&&", "ls"],
        ["cat", "/etc/hostname", "|", "wc"],
        ["A=1", "env"],
        ["no-such-program"],
    ]:
        transcript.run("run", "--", *words)
    transcript.run("run", "--shell", "echo one two | wc -w")


def test_t_is_the_terminal_and_nothing_else(transcript):
    transcript.run("run", "-t", "base")
    transcript.run("run", "-it", "--", "true")
    transcript.run("exec", "-it", "i0000", "--", "true")
    transcript.run("create", "-t", "base")
    transcript.run("run", "--rm", "-i", "--", "cat", input=b"typed\n")
