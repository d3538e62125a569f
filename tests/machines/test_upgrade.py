"""Another program in the place of the one that serves, while sandboxes live."""


def test_sandboxes_outlive_an_upgrade_of_the_binary(serving, machine, client):
    left = client.run("leave", "2").split()
    paused = client.run("leave", "1", "pause").split()
    # As a package manager does it: another file under the same name. Bytes at its end harm no program.
    machine.run("cp /usr/local/bin/soulbox /usr/local/bin/soulbox.new && echo newer >> /usr/local/bin/soulbox.new")
    machine.run("mv /usr/local/bin/soulbox.new /usr/local/bin/soulbox")
    client.run("first_steps")
    serving.stop()
    serving.start()
    client.run("find", "memory", *left, *paused)
    client.run("pause_and_copies")
    assert serving.cli("kill", *left, *paused).code == 0
