use std::io;

use bytes::Bytes;
use futures_util::Stream;
use http::{Method, Request, Uri, header};
use serde_json::json;

use super::{CALL_LIMIT, Client, json, parse, refusal, segment};
use crate::{
    Error, Result,
    model::templates::{
        BuildStatus, FileSlot, RequestBuild, RequestedBuild, StartBuild, Template, TemplateDetail,
        TemplateTag,
    },
    upload,
};

impl Client {
    pub async fn templates(&self) -> Result<Vec<Template>> {
        self.get("/templates", "listing the templates").await
    }

    /// By id only, as E2B has it.
    pub async fn template(&self, id: &str) -> Result<TemplateDetail> {
        let path = format!("/templates/{}", segment(id));
        self.get(&path, "asking for the template").await
    }

    /// By id or name. `false`: there was none.
    pub async fn delete_template(&self, name: &str) -> Result<bool> {
        let path = format!("/templates/{}", segment(name));
        let what = "deleting the template";
        match self
            .call(Method::DELETE, &path, None, what, CALL_LIMIT)
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// By id or name.
    pub async fn template_tags(&self, name: &str) -> Result<Vec<TemplateTag>> {
        let path = format!("/templates/{}/tags", segment(name));
        self.get(&path, "listing the tags").await
    }

    /// Gives the build that `target` (`name[:tag]`) means more tags.
    pub async fn assign_tags(&self, target: &str, tags: &[String]) -> Result<()> {
        let body = json(&json!({ "target": target, "tags": tags }))?;
        let what = "setting the tags";
        self.call(Method::POST, "/templates/tags", body, what, CALL_LIMIT)
            .await?;
        Ok(())
    }

    pub async fn remove_tags(&self, name: &str, tags: &[String]) -> Result<()> {
        let body = json(&json!({ "name": name, "tags": tags }))?;
        let what = "removing the tags";
        self.call(Method::DELETE, "/templates/tags", body, what, CALL_LIMIT)
            .await?;
        Ok(())
    }

    pub async fn request_build(&self, request: &RequestBuild) -> Result<RequestedBuild> {
        let what = "asking for the build";
        let body = json(request)?;
        parse(
            &self
                .call(Method::POST, "/v3/templates", body, what, CALL_LIMIT)
                .await?,
        )
    }

    /// Starts the build of a template that the server has the definition of.
    pub async fn build_builtin(&self, name: &str) -> Result<RequestedBuild> {
        let path = format!("/templates/builtin/{}", segment(name));
        let what = "asking for the build";
        parse(
            &self
                .call(Method::POST, &path, None, what, CALL_LIMIT)
                .await?,
        )
    }

    /// `hash`: 64 hex digits that stand for the content.
    pub async fn file_slot(&self, template: &str, hash: &str) -> Result<FileSlot> {
        let path = format!("/templates/{}/files/{}", segment(template), segment(hash));
        self.get(&path, "asking for a place for the files").await
    }

    /// Sends exactly `length` bytes to the place that the server named. The key is not shown: the
    /// address is its own permission.
    pub async fn upload_files(
        &self,
        slot: &FileSlot,
        length: u64,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<()> {
        let url = slot.url.as_deref().unwrap_or_default();
        let uri: Uri = url
            .parse()
            .map_err(|_| Error::protocol(format!("{url:?} is no place for an upload")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(Error::protocol(format!(
                "{url:?} is no place for an upload"
            )));
        }
        let mut request = Request::builder()
            .method(Method::PUT)
            .uri(uri)
            .header(header::CONTENT_LENGTH, length)
            .header(header::CONTENT_TYPE, "application/gzip");
        for (name, value) in &slot.headers {
            request = request.header(name, value);
        }
        let answer = upload::send(&self.transport, request, content).await?;
        if answer.status.is_success() {
            Ok(())
        } else {
            Err(Error::Api(refusal(&answer)))
        }
    }

    pub async fn start_build(
        &self,
        template: &str,
        build: &str,
        request: &StartBuild,
    ) -> Result<()> {
        let path = format!(
            "/v2/templates/{}/builds/{}",
            segment(template),
            segment(build)
        );
        let what = "starting the build";
        self.call(Method::POST, &path, json(request)?, what, CALL_LIMIT)
            .await?;
        Ok(())
    }

    /// `offset`: how many log entries are known already.
    pub async fn build_status(
        &self,
        template: &str,
        build: &str,
        offset: usize,
    ) -> Result<BuildStatus> {
        let path = format!(
            "/templates/{}/builds/{}/status?logsOffset={offset}&limit=100",
            segment(template),
            segment(build)
        );
        self.get(&path, "asking how the build is").await
    }

    /// `false`: it had ended.
    pub async fn cancel_build(&self, template: &str, build: &str) -> Result<bool> {
        let path = format!("/templates/{}/builds/{}", segment(template), segment(build));
        let what = "cancelling the build";
        match self
            .call(Method::DELETE, &path, None, what, CALL_LIMIT)
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
