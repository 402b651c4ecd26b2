//! Why a request was refused: the status that answers it and a sentence for the log (R12).

/// What was wrong with a request. It is terminal: answer it with [`super::write_refusal`] and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// More than one empty line before a request line, or half of one.
    EmptyLines,
    /// LF without CR before it.
    BareLf,
    /// CR without LF after it, or another line end gone wrong.
    LineEnd,
    /// The method is no token.
    Method,
    /// CONNECT.
    Connect,
    /// Control bytes, bytes outside ASCII or a fragment in the target, or a form that does not go with the method.
    Target,
    /// The target is longer than allowed.
    TargetTooLong,
    /// No version, or one in an unknown form.
    Version,
    /// A version of HTTP that is not 1.0 or 1.1.
    VersionNotSupported,
    /// A field's name is no token: also white space before the colon, and a folded line.
    FieldName,
    /// A field's value has a control byte.
    FieldValue,
    /// The head is longer than allowed.
    HeadTooLarge,
    /// The head has more fields than allowed.
    TooManyFields,
    /// No Host on HTTP/1.1.
    HostMissing,
    /// More than one Host.
    HostRepeated,
    /// A Host, or an authority in the target, that is none.
    Host,
    /// Content-Length is no number.
    ContentLength,
    /// More than one Content-Length.
    ContentLengthRepeated,
    /// Content-Length with Transfer-Encoding.
    LengthAndEncoding,
    /// Transfer-Encoding does not end in `chunked`, names it twice, or has an empty element.
    TransferEncoding,
    /// Transfer-Encoding on HTTP/1.0.
    EncodingOnHttp10,
    /// A coding before `chunked` that we do not know.
    CodingNotSupported,
    /// The body is larger than allowed.
    BodyTooLarge,
    /// Chunk sizes and extensions outweigh the body that they frame.
    ChunkOverhead,
    /// A chunk's size is no plain hexadecimal number of at most 16 digits.
    ChunkSize,
    /// A chunk's extension has a control byte or is too long.
    ChunkExtension,
    /// A chunk is not followed by CRLF.
    ChunkEnd,
    /// The trailers of a chunked body are longer than allowed.
    TrailersTooLarge,
    /// A trailer is a field that says where the message ends or whom it is for.
    TrailerField,
}

impl Refusal {
    /// The status code of the answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Refusal::BodyTooLarge | Refusal::ChunkOverhead => 413,
            Refusal::TargetTooLong => 414,
            Refusal::HeadTooLarge | Refusal::TooManyFields | Refusal::TrailersTooLarge => 431,
            Refusal::Connect | Refusal::CodingNotSupported => 501,
            Refusal::VersionNotSupported => 505,
            _ => 400,
        }
    }

    /// One short sentence, for the log and as the body of the answer. It repeats nothing that the client sent.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Refusal::EmptyLines => "more than one empty line precedes the request line",
            Refusal::BareLf => "a line ends in LF without CR",
            Refusal::LineEnd => "a CR is not followed by LF",
            Refusal::Method => "the method is not a token",
            Refusal::Connect => "CONNECT is not supported",
            Refusal::Target => "the request target is not valid",
            Refusal::TargetTooLong => "the request target is too long",
            Refusal::Version => "the request line has no valid HTTP version",
            Refusal::VersionNotSupported => "only HTTP/1.0 and HTTP/1.1 are supported",
            Refusal::FieldName => "a header name is not valid, is followed by white space, or its line is folded",
            Refusal::FieldValue => "a header value has a control character",
            Refusal::HeadTooLarge => "the request head is too large",
            Refusal::TooManyFields => "the request has too many header fields",
            Refusal::HostMissing => "the request has no Host",
            Refusal::HostRepeated => "the request has more than one Host",
            Refusal::Host => "the host of the request is not valid",
            Refusal::ContentLength => "Content-Length is not one number",
            Refusal::ContentLengthRepeated => "the request has more than one Content-Length",
            Refusal::LengthAndEncoding => "the request has both Content-Length and Transfer-Encoding",
            Refusal::TransferEncoding => "Transfer-Encoding does not end in one chunked",
            Refusal::EncodingOnHttp10 => "Transfer-Encoding is not part of HTTP/1.0",
            Refusal::CodingNotSupported => "chunked is the only supported transfer coding",
            Refusal::BodyTooLarge => "the request body is too large",
            Refusal::ChunkOverhead => "the chunk framing outweighs the request body",
            Refusal::ChunkSize => "a chunk size is not a hexadecimal number of at most 16 digits",
            Refusal::ChunkExtension => "a chunk extension is not valid or too long",
            Refusal::ChunkEnd => "a chunk does not end in CRLF",
            Refusal::TrailersTooLarge => "the trailer fields are too large",
            Refusal::TrailerField => "Content-Length, Transfer-Encoding and Host do not belong in trailers",
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.reason())
    }
}

impl std::error::Error for Refusal {}
