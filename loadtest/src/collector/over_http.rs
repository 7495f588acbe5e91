//! The same collector for those who send protobuf in requests of HTTP.

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;
use tokio::net::TcpListener;

use super::Receiver;

const PROTOBUF: &str = "application/x-protobuf";

/// Serves until it is dropped.
pub(super) async fn serve(listener: TcpListener, receiver: Receiver) {
    let router = Router::new()
        .route("/v1/traces", post(take))
        .with_state(receiver);
    // It ends with the collector.
    drop(axum::serve(listener, router).await);
}

async fn take(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Response {
    if headers.get(CONTENT_TYPE).is_none_or(|it| it != PROTOBUF) {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    receiver.take(request, &headers);
    let answer = ExportTraceServiceResponse::default().encode_to_vec();
    ([(CONTENT_TYPE, PROTOBUF)], answer).into_response()
}
