"""Names, tags and owners of templates."""

import uuid

import pytest
from e2b import SandboxException

pytestmark = pytest.mark.timeout(300)


def marked(templates, mark: str):
    """Cheap to build, and tells which build it is."""
    return templates.new().from_image("ubuntu:22.04").set_envs({"MARK": mark})


def test_base_is_there_and_others_only_when_built(templates):
    assert templates.exists("base") is True
    name = templates.name()
    assert templates.exists(name) is False
    templates.build(marked(templates, "1"), name)
    assert templates.exists(name) is True
    assert templates.exists(f"{name}:no-such-tag") is False


def test_tags_name_builds_and_can_be_moved_and_removed(templates, run_in):
    name = templates.name()
    first, _ = templates.build(marked(templates, "one"), f"{name}:v1")
    second, _ = templates.build(marked(templates, "two"), f"{name}:v2", tags=["also"])
    assert first.template_id == second.template_id and first.build_id != second.build_id
    assert set(second.tags) == {"v2", "also"}
    assert [run_in(f"{name}:{tag}", "echo $MARK") for tag in ("v1", "v2", "also")] == ["one\n", "two\n", "two\n"]

    told = templates.assign_tags(f"{name}:v1", ["stable", "latest"])
    assert told.build_id == first.build_id and set(told.tags) >= {"stable", "latest"}
    assert run_in(f"{name}:stable", "echo $MARK") == "one\n"
    templates.assign_tags(f"{name}:v2", "stable")
    assert run_in(f"{name}:stable", "echo $MARK") == "two\n"
    builds = {each.tag: each.build_id for each in templates.get_tags(second.template_id)}
    assert builds["v1"] == builds["latest"] == first.build_id
    assert builds["v2"] == builds["stable"] == second.build_id

    templates.remove_tags(name, ["stable", "latest"])
    assert {each.tag for each in templates.get_tags(second.template_id)}.isdisjoint({"stable", "latest"})
    with pytest.raises(SandboxException, match="404"):
        run_in(f"{name}:stable", "true")


@pytest.mark.parametrize("tags", [":bad", "", "white space"])
def test_tags_that_cannot_be_are_refused(sync_templates, server, tags):
    info, _ = sync_templates.build(marked(sync_templates, "1"))
    with server.api() as api:
        answer = api.post("/templates/tags", json={"target": info.name, "tags": [tags]})
        assert answer.status_code == 400 and answer.json()["message"], answer.text
        assert api.post("/templates/tags", json={"target": info.name, "tags": []}).status_code == 400
        assert api.post("/templates/tags", json={"target": f"{info.name}:none", "tags": ["a"]}).status_code == 404
        gone = api.request("DELETE", "/templates/tags", json={"name": info.name, "tags": ["default"]})
        assert gone.status_code == 400 and "default" in gone.json()["message"], gone.text


def test_a_new_build_is_used_by_new_sandboxes_and_a_failed_one_is_not(sync_templates, made, run_in):
    name = sync_templates.name()
    sync_templates.build(marked(sync_templates, "old"), name)
    before = made.create(template=name, timeout=120)
    sync_templates.build(marked(sync_templates, "new"), name)
    with pytest.raises(Exception):
        sync_templates.build(marked(sync_templates, "broken").run_cmd("exit 1"), name)
    assert run_in(name, "echo $MARK") == "new\n"
    assert before.commands.run("echo $MARK; ls / | wc -l").stdout.startswith("old\n")


def test_templates_are_listed_shown_and_removed(sync_templates, server, made):
    name = sync_templates.name()
    info, _ = sync_templates.build(marked(sync_templates, "1"), name, cpu_count=1, memory_mb=256)
    with server.api() as api:
        (listed,) = [each for each in api.get("/templates").json() if each["templateID"] == info.template_id]
        assert name in listed["aliases"] and (listed["cpuCount"], listed["memoryMB"]) == (1, 256)
        assert listed["buildID"] == info.build_id and listed["buildStatus"] == "ready"
        shown = api.get(f"/templates/{info.template_id}").json()
        assert [each["buildID"] for each in shown["builds"]] == [info.build_id]
        assert shown["builds"][0]["status"] == "ready"

        sandbox = made.create(template=name, timeout=120)
        refused = api.delete(f"/templates/{name}")
        assert refused.status_code == 400 and refused.json()["message"], refused.text
        assert sandbox.commands.run("true").exit_code == 0
        sandbox.kill()
        assert api.delete(f"/templates/{name}").status_code == 204
        assert api.delete(f"/templates/{name}").status_code == 404
    assert sync_templates.exists(name) is False
    with pytest.raises(SandboxException, match="404"):
        made.create(template=name)


@pytest.mark.parametrize("name", ["", "Has Space", "../up", "a" * 300, "x:y:z"])
def test_names_that_cannot_be_are_refused(server, name):
    with server.api() as api:
        answer = api.post("/v3/templates", json={"name": name})
    assert answer.status_code == 400 and answer.json()["message"], answer.text


def test_another_tenants_template_is_not_yours(sync_templates, server, stranger):
    name = sync_templates.name()
    info, _ = sync_templates.build(marked(sync_templates, "mine"), name)
    with server.api(server.stranger) as api:
        assert api.get(f"/templates/{info.template_id}").status_code in (403, 404)
        assert api.delete(f"/templates/{info.template_id}").status_code in (403, 404)
        assert api.get(f"/templates/{info.template_id}/tags").status_code in (403, 404)
        status = f"/templates/{info.template_id}/builds/{info.build_id}/status"
        assert api.get(status).status_code in (403, 404)
        for template in (name, info.template_id):
            made = api.post("/v2/sandboxes", json={"templateID": template, "timeout": 30})
            assert made.status_code in (403, 404), made.text
        assert all(each["templateID"] != info.template_id for each in api.get("/templates").json())
    # Nor can one build on it, or learn from the cache that somebody has built the same.
    with pytest.raises(Exception, match=name):
        stranger.build(stranger.new().from_template(name))
    sync_templates.build(marked(sync_templates, "mine").run_cmd("echo the same"))
    _, log = stranger.build(marked(stranger, "mine").run_cmd("echo the same"))
    assert not [each for each in log.cached if "echo the same" in each], log.text


def test_files_are_kept_apart_by_tenant(server):
    digest = "ab" * 32
    with server.api() as api:
        info = api.post("/v3/templates", json={"name": f"files-{uuid.uuid4().hex[:8]}"}).json()
        link = api.get(f"/templates/{info['templateID']}/files/{digest}")
        assert link.status_code == 201 and link.json()["present"] is False and link.json()["url"]
        assert api.put(link.json()["url"], content=b"mine", headers=link.json().get("headers") or {}).is_success
        again = api.get(f"/templates/{info['templateID']}/files/{digest}").json()
        assert again["present"] is True and again["url"]
        for wrong in ("zz" * 32, "ab", "../" * 10):
            assert api.get(f"/templates/{info['templateID']}/files/{wrong}").status_code in (400, 404)
    with server.api(server.stranger) as api:
        info = api.post("/v3/templates", json={"name": "files"}).json()
        assert api.get(f"/templates/{info['templateID']}/files/{digest}").json()["present"] is False


def test_a_build_is_started_once(server):
    with server.api() as api:
        info = api.post("/v3/templates", json={"name": f"once-{uuid.uuid4().hex[:8]}"}).json()
        path = f"/v2/templates/{info['templateID']}/builds/{info['buildID']}"
        for wrong in ({}, {"fromImage": "a", "fromTemplate": "b"}):
            assert api.post(path, json=wrong).status_code == 400
        assert api.post(path, json={"fromImage": "ubuntu:22.04", "steps": []}).status_code == 202
        assert api.post(path, json={"fromImage": "ubuntu:22.04", "steps": []}).status_code == 400
        unknown = path.replace(info["buildID"], str(uuid.uuid4()))
        assert api.post(unknown, json={"fromImage": "ubuntu:22.04"}).status_code == 404
