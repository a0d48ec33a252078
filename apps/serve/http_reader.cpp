#include "serve/http_reader.hpp"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <cstdint>
#include <limits>
#include <utility>

#include "calm/base/error.hpp"

namespace calm::apps {

namespace {

namespace beast_http = boost::beast::http;
using beast_text = boost::beast::string_view;
using beast_code = boost::beast::error_code;

std::string_view as_std(beast_text text) {
    return {text.data(), text.size()};
}

bool is_all_of(std::string_view text, std::string_view allowed) {
    return text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view decimal_digits = "0123456789";
constexpr std::string_view address_characters = "0123456789ABCDEFabcdef:.";
constexpr std::string_view host_characters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%!$&'()*+,;=";

// The host of "host", "host:port", "[address]" or "[address]:port", without the brackets.
std::optional<std::string_view> host_of(std::string_view value) {
    bool const is_address = value.starts_with('[');
    auto const end = std::min(value.find(is_address ? ']' : ':'), value.size());
    if (is_address && end == value.size()) return {};
    auto const host = is_address ? value.substr(1, end - 1) : value.substr(0, end);
    auto const rest = value.substr(is_address ? end + 1 : end);
    bool const has_port = rest.starts_with(':') && is_all_of(rest.substr(1), decimal_digits);
    if (!(rest.empty() || has_port) || !is_all_of(host, is_address ? address_characters : host_characters)) return {};
    return host;
}

// Whether text of a chunk extension may be ignored: control characters there end the line for some parsers.
bool has_control_characters(std::string_view text) {
    return std::ranges::any_of(text, [](char c) { return (c >= 0 && c < ' ' && c != '\t') || c == '\x7f'; });
}

}  // namespace

bool is_same_text(std::string_view a, std::string_view b) {
    return boost::beast::iequals(beast_text(a.data(), a.size()), beast_text(b.data(), b.size()));
}

bool is_host_among(std::string_view value, std::vector<std::string> const& hosts) {
    auto const host = host_of(value);
    return hosts.empty() || (host && !host->empty() && std::ranges::any_of(hosts, [&](std::string_view allowed) {
                                 if (allowed.starts_with('[') && allowed.ends_with(']'))
                                     allowed = allowed.substr(1, allowed.size() - 2);
                                 return is_same_text(*host, allowed);
                             }));
}

// Beast's parser calls these functions; what the server needs is kept, the rest is ignored.
class http_reader::parser final : public beast_http::basic_parser<true> {
public:
    http_request request;
    std::string target;
    std::optional<std::string> host, origin, content_type, authorization, expect, transfer_encoding;
    bool is_head = false;
    bool is_http_1_0 = false;
    bool keeps_alive = false;
    bool header_done = false;
    bool has_body_bytes = false;
    char const* repeated = nullptr;  // a header that must not be repeated, and is

private:
    void on_request_impl(beast_http::verb, beast_text method, beast_text text, int version, beast_code&) override {
        is_head = method == "HEAD";
        request.method = is_head ? "GET" : as_std(method);
        target = as_std(text);
        is_http_1_0 = version == 10;
    }
    void on_response_impl(int, beast_text, int, beast_code&) override {}
    void on_field_impl(beast_http::field name, beast_text, beast_text value, beast_code&) override {
        if (header_done) return;  // a trailer must not replace a header
        using beast_http::field;
        auto const keep = [&](std::optional<std::string>& kept, char const* shown) {
            if (kept) repeated = shown;
            kept = as_std(value);
        };
        if (name == field::host) keep(host, "Host");
        if (name == field::origin) keep(origin, "Origin");
        if (name == field::content_type) keep(content_type, "Content-Type");
        if (name == field::authorization) keep(authorization, "Authorization");
        if (name == field::expect) keep(expect, "Expect");
        if (name == field::transfer_encoding) keep(transfer_encoding, "Transfer-Encoding");
    }
    void on_header_impl(beast_code&) override { header_done = true; }
    void on_body_init_impl(boost::optional<std::uint64_t> const&, beast_code&) override {}
    std::size_t on_body_impl(beast_text bytes, beast_code&) override {
        request.body += as_std(bytes);
        return bytes.size();
    }
    void on_chunk_header_impl(std::uint64_t, beast_text extensions, beast_code& code) override {
        if (has_control_characters(as_std(extensions))) code = beast_http::error::bad_chunk_extension;
    }
    std::size_t on_chunk_body_impl(std::uint64_t, beast_text bytes, beast_code& code) override {
        return on_body_impl(bytes, code);
    }
    void on_finish_impl(beast_code&) override {}
};

http_reader::http_reader(http_limits const& limits, std::vector<std::string> const& hosts) :
    limits_(limits), hosts_(hosts) {}

http_reader::~http_reader() = default;

bool http_reader::is_complete() const {
    return parser_ != nullptr && !fault_ && parser_->is_done();
}

bool http_reader::awaits_continue() const {
    return parser_ != nullptr && !fault_ && !parser_->is_done() && parser_->expect && !parser_->has_body_bytes &&
           !parser_->is_http_1_0;
}

bool http_reader::is_head() const {
    return parser_ != nullptr && parser_->is_head;
}

bool http_reader::is_http_1_0() const {
    return parser_ != nullptr && parser_->is_http_1_0;
}

bool http_reader::keeps_alive() const {
    return parser_ != nullptr && parser_->keeps_alive;
}

http_request http_reader::take() {
    return std::move(parser_->request);
}

void http_reader::reset() {
    parser_.reset();
    fault_.reset();
    scanned_ = end_ = 0;
    begun_ = false;
}

void http_reader::refuse(int status, std::string message) {
    if (!fault_) fault_ = http_fault{status, std::move(message)};
}

std::size_t http_reader::read(std::string_view input) {
    std::size_t used = 0;
    if (!begun_)  // some clients send an empty line between requests
        while (input.substr(used).starts_with("\r\n")) used += 2;
    auto const rest = input.substr(used);
    if (rest.empty() || (!begun_ && rest == "\r")) return used;
    begun_ = true;
    if (parser_ == nullptr) used += read_header(rest);
    if (parser_ != nullptr && !fault_ && !parser_->is_done() && used < input.size())
        used += read_body(input.substr(used));
    return used;
}

// Beast accepts folded lines and limits each header rather than all, so complete headers are checked before it sees
// them.
void http_reader::find_end_of_header(std::string_view input) {
    for (; scanned_ < input.size() && end_ == 0 && !fault_; ++scanned_) {
        char const c = input[scanned_];
        char const before = scanned_ > 0 ? input[scanned_ - 1] : ' ';
        if ((c == '\n') != (before == '\r'))
            refuse(400, "expected every line of the headers to end with CR LF, found one of these without the other");
        else if (before == '\n' && (c == ' ' || c == '\t'))
            refuse(400, "expected each header on one line, found one that is folded");
        else if (c != '\r' && c != '\n' && has_control_characters({&c, 1}))
            refuse(400, "expected an HTTP/1.1 request without TLS, found control characters in its headers");
        else if (input.substr(0, scanned_ + 1).ends_with("\r\n\r\n"))
            end_ = scanned_ + 1;
    }
}

std::size_t http_reader::read_header(std::string_view input) {
    find_end_of_header(input.substr(0, limits_.header_bytes));
    if (end_ == 0 && input.size() >= limits_.header_bytes)
        refuse(431, sentence("expected headers of at most ", limits_.header_bytes, " bytes, found more"));
    if (end_ == 0 || fault_) return 0;
    parser_ = std::make_unique<parser>();
    parser_->header_limit(std::numeric_limits<std::uint32_t>::max());
    parser_->body_limit(limits_.body_bytes);
    beast_code code;
    auto const used = parser_->put(boost::asio::buffer(input.data(), end_), code);
    if (code == beast_http::error::body_limit)
        refuse(413, sentence("expected a body of at most ", limits_.body_bytes, " bytes, found more"));
    else if (code || used != end_ || !parser_->is_header_done())
        refuse(400, "expected an HTTP/1.1 request, found malformed headers");
    else
        check_header();
    if (!fault_) parser_->eager(true);
    return used;
}

std::size_t http_reader::read_body(std::string_view input) {
    parser_->has_body_bytes = true;
    // Beast asserts that it gets the last chunk, "0" CR LF CR LF, whole. No chunked body ends with fewer bytes.
    if (parser_->chunked() && input.size() < 5) return 0;
    beast_code code;
    auto const used = parser_->put(boost::asio::buffer(input.data(), input.size()), code);
    if (code == beast_http::error::body_limit)
        refuse(413, sentence("expected a body of at most ", limits_.body_bytes, " bytes, found more"));
    else if (code && code != beast_http::error::need_more)
        refuse(400, "expected a body in chunks, found a malformed chunk");
    else if (used == 0 && !parser_->is_done() && input.size() >= limits_.header_bytes)
        refuse(431, sentence("expected trailers of at most ", limits_.header_bytes, " bytes, found more"));
    return used;
}

namespace {

// Splits "/path?query", or "http://host/path?query" if its host is the Host header's. False if it is another kind of
// target.
bool split_target(std::string_view target, std::string_view host, http_request& request) {
    constexpr std::string_view scheme = "http://";
    bool const is_absolute = is_same_text(target.substr(0, scheme.size()), scheme);
    if (is_absolute) {
        target.remove_prefix(scheme.size());
        auto const end = std::min(target.find_first_of("/?"), target.size());
        if (!is_same_text(target.substr(0, end), host)) return false;
        target.remove_prefix(end);
    }
    auto const end = std::min(target.find('?'), target.size());
    request.path = target.substr(0, end);
    request.query = target.substr(std::min(end + 1, target.size()));
    if (is_absolute && request.path.empty()) request.path = "/";
    return request.path.starts_with('/') || (request.path == "*" && request.method == "OPTIONS");
}

}  // namespace

void http_reader::check_header() {
    auto& p = *parser_;
    auto const host = p.host.value_or("");
    if (p.repeated != nullptr) return refuse(400, sentence("expected one ", p.repeated, " header, found several"));
    if (p.transfer_encoding && (p.is_http_1_0 || !is_same_text(*p.transfer_encoding, "chunked")))
        return refuse(400, "expected Transfer-Encoding: chunked, in HTTP/1.1, or none, found another");
    if (!p.host && !p.is_http_1_0) return refuse(400, "expected a Host header, found none");
    if (!host_of(host)) return refuse(400, "expected a host and perhaps a port in the Host header, found other text");
    if (!split_target(p.target, host, p.request))
        return refuse(400, "expected a path, or a URL of the same host as the Host header, found another target");
    if (!is_host_among(host, hosts_))
        return refuse(403, "expected a Host header that names this server, found another: send localhost, 127.0.0.1 "
                           "or [::1] to a server on a loopback address");
    if (p.origin && !is_same_text(*p.origin, "http://" + host))
        return refuse(403, "expected no request from a page of another site, found another Origin than this server's");
    if (p.expect && !is_same_text(*p.expect, "100-continue"))
        return refuse(417, "expected no Expect header but 100-continue, found another");
    p.keeps_alive = p.keep_alive() && !p.is_http_1_0;
    p.request.content_type = p.content_type.value_or("");
    p.request.authorization = p.authorization.value_or("");
}

}  // namespace calm::apps
