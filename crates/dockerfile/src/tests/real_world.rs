use super::*;

const DOCKERFILE: &str = r#"# syntax=docker/dockerfile:1.7
ARG PYTHON_VERSION=3.12

# ---- wheels ---------------------------------------------------------------
FROM python:${PYTHON_VERSION}-slim AS builder
ARG DEBIAN_FRONTEND=noninteractive
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    VIRTUAL_ENV=/opt/venv
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update \
    # the compiler is only needed here
    && apt-get install -y --no-install-recommends \
        build-essential \
        libpq-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python -m venv "$VIRTUAL_ENV"
ENV PATH="$VIRTUAL_ENV/bin:$PATH"
WORKDIR /build
COPY requirements.txt requirements-dev.txt ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install -r requirements.txt
COPY pyproject.toml README.md ./
COPY src/ src/
RUN pip install --no-deps .

# ---- assets ---------------------------------------------------------------
FROM --platform=$BUILDPLATFORM node:20-slim AS assets
WORKDIR /web
COPY web/package*.json ./
RUN npm ci
COPY web .
RUN npm run build

# ---- never needed by the last stage ----------------------------------------
FROM builder AS tests
COPY tests tests
RUN pip install -r requirements-dev.txt && pytest

# ---- what runs --------------------------------------------------------------
FROM python:${PYTHON_VERSION}-slim
LABEL org.opencontainers.image.title="shop"
ARG APP_UID=10001
ENV VIRTUAL_ENV=/opt/venv \
    PYTHONUNBUFFERED=1 PORT=8000
ENV PATH="$VIRTUAL_ENV/bin:$PATH"
RUN <<EOF
set -eux
groupadd --gid ${APP_UID} app
useradd --uid ${APP_UID} --gid app --create-home --shell /bin/bash app
install -d -o app -g app /srv/app /srv/app/data
EOF
COPY --from=builder $VIRTUAL_ENV $VIRTUAL_ENV
COPY --from=assets --chown=app:app /web/dist /srv/app/static
COPY --chown=app:app --chmod=755 <<'ENTRY' /srv/app/entry.sh
#!/bin/sh
exec "$@"
ENTRY
WORKDIR /srv/app
COPY --chown=app:app manage.py ./
USER app:app
VOLUME /srv/app/data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD python -c "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health')"
ENTRYPOINT ["/srv/app/entry.sh"]
CMD ["gunicorn", "--bind", "0.0.0.0:8000", "shop.wsgi:application"]
"#;

#[test]
fn a_python_service_with_three_stages_is_understood() {
    let plan = plan(DOCKERFILE);
    let names: Vec<Option<&str>> = plan.stages.iter().map(|s| s.name.as_deref()).collect();
    assert_eq!(names, [Some("builder"), Some("assets"), None]);
    for number in [0, 2] {
        assert_eq!(
            plan.stages[number].base,
            Base::Image("python:3.12-slim".to_owned())
        );
    }

    let builder = steps(&plan.stages[0]);
    assert!(builder[1].contains(
        "export DEBIAN_FRONTEND=\"${DEBIAN_FRONTEND-noninteractive}\"; /bin/bash -o pipefail -c "
    ));
    assert!(!builder[1].contains("only needed here"));
    assert_eq!(builder[3], "ENV PATH|/opt/venv/bin:${PATH}");

    let service = steps(last(&plan));
    assert_eq!(
        service[0],
        "ENV VIRTUAL_ENV|/opt/venv|PYTHONUNBUFFERED|1|PORT|8000"
    );
    assert!(service[2].ends_with("install -d -o app -g app /srv/app /srv/app/data\n"));
    assert_eq!(service[3], "COPY /opt/venv|/opt/venv|root|");
    assert_eq!(service[4], "COPY /web/dist|/srv/app/static|app:app|");
    assert_eq!(service[5], "COPY |/srv/app/entry.sh|app:app|755");
    assert_eq!(service[8], "USER app");
    assert_eq!(service.len(), 9);

    assert_eq!(
        plan.start.as_deref(),
        Some("/srv/app/entry.sh gunicorn --bind 0.0.0.0:8000 shop.wsgi:application")
    );
    assert!(plan.ready.unwrap().starts_with("python -c \"import urllib"));
    assert_eq!(plan.start_line, Some(66));
    // The cache mount and the group of USER.
    assert_eq!(plan.warnings.len(), 2);
}

#[test]
fn every_step_knows_its_line() {
    let plan = plan(DOCKERFILE);
    let lines: Vec<&str> = DOCKERFILE.lines().collect();
    for step in plan.stages.iter().flat_map(|stage| &stage.steps) {
        let text = lines[step.line as usize - 1];
        let keyword = text.split_whitespace().next().unwrap();
        assert!(
            keyword == step.kind.name() || keyword == "FROM",
            "{text}: {step:?}"
        );
    }
}
