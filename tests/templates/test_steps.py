"""What each step does to the template."""

import os

import pytest
from e2b import BuildException

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def context(tmp_path):
    def write(name: str, text: str, mode: int = 0o644) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    write("app.py", "app")
    write("bin/tool", "#!/bin/sh\necho tool", 0o755)
    write("folder/a.txt", "a")
    write("folder/sub/b.txt", "b")
    write("many/1.txt", "1")
    write("many/2.txt", "2")
    write("many/skip.md", "no")
    write("ignored/secret", "no")
    write(".dockerignore", "ignored\n")
    os.symlink("a.txt", tmp_path / "folder" / "link")
    os.symlink("nowhere", tmp_path / "folder" / "dangling")
    return tmp_path


def listing(run_in, info, *paths: str) -> dict[str, str]:
    """Type, owner, group and mode of each path, and where it leads."""
    out = run_in(info.name, f"stat -c '%n|%F|%U|%G|%a|%N' {' '.join(paths)}", user="root")
    return {line.split("|")[0]: line.split("|", 1)[1] for line in out.splitlines()}


def test_files_land_where_docker_would_put_them(templates, run_in, context):
    template = (
        templates.new(file_context_path=str(context))
        .from_image("ubuntu:22.04")
        .copy("app.py", "/srv/renamed.py")
        .copy("app.py", "/srv/into/")
        .copy("app.py", "relative/app.py")
        .copy("bin/tool", "/srv/tool")
        .copy("folder", "/srv/folder")
        .copy("folder/*", "/srv/glob")
        .copy("many/*.txt", "/srv/texts/")
        .copy(["app.py", "bin/tool"], "/srv/both/")
    )
    info, _ = templates.build(template)
    found = run_in(info.name, "cd /srv && find . -type f -o -type l | sort; cat renamed.py /home/user/relative/app.py")
    assert found.split() == [
        "./both/app.py", "./both/tool",
        "./folder/a.txt", "./folder/dangling", "./folder/link", "./folder/sub/b.txt",
        "./glob/a.txt", "./glob/dangling", "./glob/link", "./glob/sub/b.txt",
        "./into/app.py", "./renamed.py", "./texts/1.txt", "./texts/2.txt", "./tool",
        "appapp",
    ]  # fmt: skip


def test_owners_modes_and_links_are_as_asked(templates, run_in, context):
    template = (
        templates.new(file_context_path=str(context))
        .from_image("ubuntu:22.04")
        .copy("app.py", "/srv/plain.py")
        .copy("bin/tool", "/srv/tool")
        .copy("app.py", "/srv/roots.py", user="root", mode=0o600)
        .copy("app.py", "/srv/theirs.py", user="nobody:nogroup")
        .copy("folder", "/srv/folder", mode=0o750)
        .copy("folder/link", "/srv/resolved", resolve_symlinks=True)
        .copy("folder/link", "/srv/kept")
    )
    info, _ = templates.build(template)
    names = ["plain.py", "tool", "roots.py", "theirs.py", "folder", "folder/a.txt", "folder/link", "resolved", "kept"]
    found = listing(run_in, info, *(f"/srv/{name}" for name in names))
    assert found["/srv/plain.py"].startswith("regular file|user|user|644")
    assert found["/srv/tool"].startswith("regular file|user|user|755")
    assert found["/srv/roots.py"].startswith("regular file|root|root|600")
    assert found["/srv/theirs.py"].startswith("regular file|nobody|nogroup|644")
    assert found["/srv/folder/a.txt"].startswith("regular file|user|user|750")
    assert "'/srv/folder/link' -> 'a.txt'" in found["/srv/folder/link"]
    assert found["/srv/resolved"].startswith("regular file|")
    assert "-> 'a.txt'" in found["/srv/kept"]


def test_plain_archives_are_taken_too(sync_templates, run_in, context):
    template = sync_templates.new(file_context_path=str(context)).from_image("ubuntu:22.04")
    info, _ = sync_templates.build(template.copy("folder", "/srv/folder", gzip=False))
    assert run_in(info.name, "cat /srv/folder/sub/b.txt") == "b"


def test_a_directory_is_merged_and_links_at_the_target_are_followed(sync_templates, run_in, context):
    template = (
        sync_templates.new(file_context_path=str(context))
        .from_image("ubuntu:22.04")
        .run_cmd("mkdir -p /srv/real && echo old > /srv/real/a.txt && echo mine > /srv/real/mine", user="root")
        .run_cmd("chmod 701 /srv/real && ln -s real /srv/alias", user="root")
        .copy("folder", "/srv/alias")
    )
    info, _ = sync_templates.build(template)
    assert run_in(info.name, "cat /srv/real/a.txt /srv/real/mine; stat -c %a /srv/real") == "amine\n701\n"


def test_a_copy_cannot_leave_the_sandbox(sync_templates, run_in, context, tmp_path_factory):
    """A link in the image points at a folder that also exists on the host."""
    outside = tmp_path_factory.mktemp("outside")
    template = (
        sync_templates.new(file_context_path=str(context))
        .from_image("ubuntu:22.04")
        .run_cmd(f"mkdir -p {outside} && ln -s {outside} /srv/out", user="root")
        .copy("app.py", "/srv/out/app.py")
        .copy("folder", "/srv/out")
    )
    info, _ = sync_templates.build(template)
    assert list(outside.iterdir()) == []
    assert run_in(info.name, f"ls {outside}").split() == ["a.txt", "app.py", "dangling", "link", "sub"]


def test_files_that_are_not_there_are_told(sync_templates, context):
    with pytest.raises(Exception, match="no-such-file"):
        template = sync_templates.new(file_context_path=str(context)).from_image("ubuntu:22.04")
        sync_templates.build(template.copy("no-such-file", "/srv/"))


def test_variables_reach_later_steps_and_the_sandbox(templates, run_in):
    literal = 'say "hi" `x` $(y) \\ end'
    template = (
        templates.new()
        .from_image("ubuntu:22.04")
        .set_envs({"A": "1", "LITERAL": literal})
        .set_envs({"B": "$A-${A}2", "PATH": "/opt/mine"})
        .run_cmd('printf "%s|%s|%s|%s" "$A" "$B" "$LITERAL" "$PATH" > /tmp/seen')
        .run_cmd("cp /tmp/seen /srv/seen", user="root")
    )
    info, _ = templates.build(template)
    a, b, c, path = run_in(info.name, "cat /srv/seen").split("|")
    assert (a, b, c) == ("1", "1-12", literal)
    assert path.startswith("/opt/mine:") and "/usr/bin" in path.split(":")
    assert run_in(info.name, 'printf "%s|%s" "$B" "$LITERAL"') == f"1-12|{literal}"


def test_the_sandboxs_own_variables_win(sync_templates, made):
    info, _ = sync_templates.build(sync_templates.new().from_image("ubuntu:22.04").set_envs({"A": "template", "B": "b"}))
    sandbox = made.create(template=info.name, envs={"A": "mine"}, timeout=60)
    assert sandbox.commands.run("echo $A $B").stdout == "mine b\n"


def test_workdirs_are_made_and_relative_to_each_other(templates, run_in):
    template = (
        templates.new()
        .from_image("ubuntu:22.04")
        .set_workdir("/made/deep")
        .set_workdir("deeper")
        .run_cmd("pwd > here && stat -c %U /made /made/deep/deeper >> here")
    )
    info, _ = templates.build(template)
    assert run_in(info.name, "pwd; cat here").split() == ["/made/deep/deeper"] * 2 + ["user", "user"]


def test_a_workdir_that_is_a_file_fails_the_step(sync_templates):
    with pytest.raises(BuildException, match="(?i)workdir"):
        sync_templates.build(sync_templates.new().from_image("ubuntu:22.04").set_workdir("/etc/passwd"))


def test_users_are_made_and_last_beyond_the_build(templates, run_in):
    template = (
        templates.new()
        .from_image("ubuntu:22.04")
        .run_cmd("whoami > /tmp/first")
        .set_user("worker")
        .run_cmd("whoami > /tmp/second; echo $HOME >> /tmp/second")
        .run_cmd("whoami > /tmp/third", user="root")
        .run_cmd("whoami > /tmp/fourth")
    )
    info, _ = templates.build(template)
    out = run_in(info.name, "whoami; cat /tmp/first /tmp/second /tmp/third /tmp/fourth")
    assert out.split() == ["worker", "user", "worker", "/home/worker", "root", "worker"]


def test_the_default_user_may_become_root_and_has_a_home(sync_templates, run_in):
    info, _ = sync_templates.build(sync_templates.new().from_image("ubuntu:22.04"))
    out = run_in(info.name, "whoami; pwd; sudo whoami; test -f ~/.bashrc && echo skeleton; stat -c %U ~")
    assert out.split() == ["user", "/home/user", "root", "skeleton", "user"]


def test_the_helpers_of_the_builder_do_what_they_say(sync_templates, run_in):
    template = (
        sync_templates.new()
        .from_image("ubuntu:22.04")
        .make_dir("/home/user/kept", mode=0o711)
        .run_cmd("echo 1 > one; echo 2 > two")
        .rename("one", "renamed")
        .remove("two")
        .make_symlink("renamed", "alias")
    )
    info, _ = sync_templates.build(template)
    assert run_in(info.name, "ls -d kept renamed alias two 2>/dev/null; readlink alias; stat -c %a kept").split() == [
        "alias", "kept", "renamed", "renamed", "711",
    ]  # fmt: skip


def test_what_a_step_started_does_not_live_into_the_next(sync_templates, run_in):
    template = (
        sync_templates.new()
        .from_image("ubuntu:22.04")
        .run_cmd("(setsid sleep 300 > /dev/null 2>&1 &)")
        .run_cmd("for p in /proc/[0-9]*; do cat $p/comm; done | grep -c '^sleep$' > /tmp/left || true")
    )
    info, _ = sync_templates.build(template)
    assert run_in(info.name, "cat /tmp/left") == "0\n"


def test_removals_and_replacements_of_earlier_files_last(sync_templates, run_in):
    """What overlayfs must keep of a step: whiteouts, opaque folders, modes, owners, links, times."""
    template = (
        sync_templates.new()
        .from_image("ubuntu:22.04")
        .run_cmd("mkdir -p /d/old && echo 1 > /d/gone && echo 1 > /d/old/inner && echo 1 > /d/kept", user="root")
        .run_cmd("rm /d/gone && rm -r /d/old && mkdir /d/old && echo 2 > /d/old/new", user="root")
        .run_cmd("chown nobody /d/kept; chmod 4711 /d/kept; ln /d/kept /d/linked; touch -d 2001-02-03 /d/old/new", user="root")
        .run_cmd("rm -rf /usr/share/common-licenses && ln -s /etc /usr/share/common-licenses", user="root")
    )  # fmt: skip
    info, _ = sync_templates.build(template)
    out = run_in(
        info.name,
        "ls -A /d /d/old | xargs; stat -c '%U %a %h' /d/kept; stat -c %y /d/old/new; readlink /usr/share/common-licenses",
        user="root",
    )
    first, stat, time, link = out.strip().splitlines()
    assert first == "/d: kept linked old /d/old: new"
    assert stat == "nobody 4711 2" and time.startswith("2001-02-03") and link == "/etc"


def test_a_build_is_limited_as_its_sandboxes_are(sync_templates):
    template = sync_templates.new().from_image("ubuntu:22.04").run_cmd("tail /dev/zero")
    with pytest.raises(BuildException, match="failed to run command"):
        sync_templates.build(template, memory_mb=256)


def test_a_build_does_not_reach_the_machine(sync_templates, server):
    """The same network policy as a sandbox: the server's own ports are not there."""
    probe = f"(exec 3<>/dev/tcp/127.0.0.1/{server.admin_port}) 2>/dev/null && exit 9; exit 0"
    sync_templates.build(sync_templates.new().from_image("ubuntu:22.04").run_cmd(probe))
