#pragma once
// Parses one HTTP/1.1 request. Refuses what is malformed, too large or meant for another host, and whatever two parsers
// could read differently (request smuggling).

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http_server.hpp"

namespace calm::apps {

// Why a request is refused. The message contains no bytes of the client.
struct http_fault {
    int status = 400;
    std::string message;
};

// Whether names of headers, or values for which case means nothing, are equal.
bool is_same_text(std::string_view a, std::string_view b);

// Whether a Host header's value names one of the hosts; the port is ignored. An empty list allows every host.
bool is_host_among(std::string_view value, std::vector<std::string> const& hosts);

class http_reader {
public:
    // Keeps references to both.
    http_reader(http_limits const& limits, std::vector<std::string> const& hosts);
    http_reader(http_reader const&) = delete;
    http_reader& operator=(http_reader const&) = delete;
    ~http_reader();

    // Consumes bytes from the beginning of `input`, all that arrived and that no earlier call consumed, and returns
    // their number. Input of header_bytes is always enough to continue; otherwise there is a fault.
    std::size_t read(std::string_view input);

    [[nodiscard]] bool is_begun() const { return begun_; }
    [[nodiscard]] bool is_complete() const;
    [[nodiscard]] std::optional<http_fault> const& fault() const { return fault_; }
    // Whether the client waits for "100 Continue" before it sends the body.
    [[nodiscard]] bool awaits_continue() const;

    // Of a request whose headers are complete.
    [[nodiscard]] bool is_head() const;      // the answer has no body
    [[nodiscard]] bool is_http_1_0() const;  // the client understands no chunks
    [[nodiscard]] bool keeps_alive() const;
    // The complete request; HEAD has become GET.
    http_request take();
    // Prepares for the next request.
    void reset();

private:
    class parser;

    std::size_t read_header(std::string_view input);
    std::size_t read_body(std::string_view input);
    void find_end_of_header(std::string_view input);
    void check_header();
    void refuse(int status, std::string message);

    http_limits const& limits_;
    std::vector<std::string> const& hosts_;
    std::unique_ptr<parser> parser_;  // from the end of the headers on
    std::optional<http_fault> fault_;
    std::size_t scanned_ = 0;  // bytes of the headers checked so far
    std::size_t end_ = 0;      // of the headers; 0 until it has arrived
    bool begun_ = false;
};

}  // namespace calm::apps
