"""The frameworks that drive E2B's SDK, its desktop, and its command line."""

from ecosystem.entry import Entry, Limit

INTERPRETER = ("code-interpreter-v1",)

HTTPS_ONLY = Limit("plain", "ports", "certificate", (
    "it makes `https://` of the host itself, as E2B serves ports by HTTPS only, and `env` names no certificate: "
    "works with `env.tls`"
))  # fmt: skip
FRAMEWORKS: tuple[Entry, ...] = (
    Entry(("@e2b/cli@2.19.0",), "cli.mjs"),
    Entry(("e2b-desktop==2.7.2",), "desktop.py", templates=("desktop",)),
    Entry(("@e2b/desktop@2.4.0",), "desktop.mjs", templates=("desktop",)),
    Entry(("openai-agents[e2b]==0.24.0",), "openai_agents.py"),
    Entry(("@openai/agents-extensions@0.18.0", "@openai/agents@0.18.0", "e2b@2.51.0"), "openai_agents.mjs"),
    Entry(("langchain-e2b==0.0.6",), "langchain_e2b_backend.py"),
    Entry(("harbor[e2b]==0.24.0",), "harbor_task.py", needs_python=(3, 12)),
    Entry(("verifiers[e2b]==0.4.0",), "verifiers_runtime.py", limits=(HTTPS_ONLY,)),
    Entry(("pydantic-ai-harness[e2b]==0.62.0",), "pydantic_ai_harness_backend.py"),
    Entry(("@mastra/e2b@0.8.0", "@mastra/core@1.71.0"), "mastra.mjs", limits=(HTTPS_ONLY,), needs_node=22),
    Entry(("@computesdk/e2b@1.7.52",), "computesdk.mjs"),
    Entry(("agno==3.1.10", "e2b-code-interpreter==2.11.5"), "agno_tools.py", templates=INTERPRETER),
    Entry(("crewai-tools[e2b]==1.15.30",), "crewai_tools_e2b.py", templates=INTERPRETER),
    Entry(("smolagents[e2b]==1.26.0",), "smolagents_executor.py", templates=INTERPRETER),
    Entry(("google-adk[e2b]==2.13.0",), "google_adk.py"),
    # Newer ones ask for a certifi that not every mirror has.
    Entry(("litellm==1.103.5",), "litellm_sandbox.py", templates=INTERPRETER),
)
