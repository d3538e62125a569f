/// E2B's specification says 204, its server answers 200 with text; clients take both.
pub(crate) async fn health() -> &'static str {
    "ok\n"
}
