//! What can go wrong: with a request, which is answered, and with the server, which ends.

use std::io;
use std::net::SocketAddr;

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use serde_json::json;
use thiserror::Error as ThisError;

use crate::model::{INPUTS, OUTPUTS};

/// After how many seconds it is worth to come back where the queue is full.
const RETRY_AFTER_S: u16 = 1;

/// Why a request has no result.
#[derive(Clone, Debug, ThisError)]
pub enum Refusal {
    /// Its body is not what it is to be.
    #[error("{0}; a body is {{\"input\": [..]}} with {INPUTS} numbers, answered with {OUTPUTS}")]
    Body(#[from] BodyError),
    /// Its body was not there in time.
    #[error("the body was not there within {0} ms")]
    Slow(u64),
    /// As many requests wait as may.
    #[error("{0} requests wait already, as many as may: come again")]
    Full(u32),
    /// Its time is over.
    #[error("there was no result within {0} ms")]
    Late(u64),
    /// The device failed.
    #[error("the device failed: {0}")]
    Failed(#[from] wakeline::Error),
    /// The server ends, or the batch was lost with a panic.
    #[error("the server ends, or has lost the batch: come again")]
    Lost,
}

/// What is wrong with a body.
#[derive(Clone, PartialEq, Eq, Debug, ThisError)]
pub enum BodyError {
    /// It is too long, or its connection broke.
    #[error("the body cannot be read: {0}")]
    Unread(String),
    /// It is no JSON, or has other fields.
    #[error("the body cannot be understood: {0}")]
    Json(String),
    /// The number of numbers.
    #[error("`input` has {0} numbers")]
    Count(usize),
    /// A number that is none of the model's.
    #[error("`input[{place}]` is {number}, which is too large for the model's 32 bits")]
    Number {
        /// Which one, from 0 on.
        place: usize,
        /// As it was sent.
        number: String,
    },
}

impl Refusal {
    /// The status, and a name for programs and metrics.
    pub const fn code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Body(_) => (StatusCode::BAD_REQUEST, "bad_body"),
            Self::Slow(_) => (StatusCode::REQUEST_TIMEOUT, "slow_body"),
            Self::Full(_) => (StatusCode::SERVICE_UNAVAILABLE, "full"),
            Self::Late(_) => (StatusCode::GATEWAY_TIMEOUT, "late"),
            Self::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, "device"),
            Self::Lost => (StatusCode::SERVICE_UNAVAILABLE, "lost"),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, code) = self.code();
        let mut response = said(status, code, &self.to_string());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        response
    }
}

/// An error as the server says all of them.
pub(crate) fn said(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({ "error": { "code": code, "message": message } }))).into_response()
}

/// Why the server ends.
#[derive(Debug, ThisError)]
pub enum ServeError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}; `--listen` takes another address, or port 0")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The system refuses what the server needs.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The device cannot be had, or is left with work.
    #[error("{0}")]
    Device(#[from] wakeline::Error),
    /// Not all that was in flight ended in time.
    #[error("{what} was still under way after {grace_ms} ms; `--grace-ms` gives it longer")]
    Grace {
        /// What it was.
        what: &'static str,
        /// How long it had.
        grace_ms: u64,
    },
}

impl ServeError {
    /// The code that the program ends with: 3 where there is no device.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Device(error) if error.code().is_no_device() => 3,
            _ => 1,
        }
    }
}
