// Arbitrary bytes as what a client of `serve` sends: a request is refused or complete, the same for bytes that arrive
// at once or one after another. Its body is refused as an api_error or is a valid completion request.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.hpp"
#include "serve/completion_request.hpp"
#include "serve/http_reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace {

using namespace calm::apps;

struct outcome {
    int status = 0;  // of a refusal
    std::optional<http_request> request;
};

// Reads until a request is complete or refused, `step` more bytes at a time.
outcome outcome_of(std::string_view bytes, std::size_t step) {
    static http_limits const limits{.header_bytes = 2000, .body_bytes = 4000};
    static std::vector<std::string> const hosts{"localhost"};
    http_reader reader(limits, hosts);
    std::size_t used = 0;
    for (std::size_t there = 0; there < bytes.size();) {
        there = std::min(bytes.size(), there + step);
        used += reader.read(bytes.substr(used, there - used));
        if (used > there) std::abort();
        if (reader.fault()) return {reader.fault()->status, {}};
        if (reader.is_complete()) return {0, reader.take()};
    }
    return {};
}

void check_body(std::string_view body) {
    try {
        auto const request = parse_completion_request(body);
        if (request.prompts.empty() || request.n < 1 || request.max_tokens < 0) std::abort();
        for (bool const autoregressive : {false, true}) {
            try {
                static_cast<void>(sampler_of_request(request, autoregressive, 200, 2000));
            } catch (api_error const&) {
            }
        }
    } catch (api_error const& wrong) {
        if (wrong.status < 400 || wrong.message.empty() || wrong.json().empty()) std::abort();
    }
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const bytes(reinterpret_cast<char const*>(data), size);
    auto const whole = outcome_of(bytes, std::max<std::size_t>(1, size)), slow = outcome_of(bytes, 1);
    if (whole.status != slow.status || whole.request.has_value() != slow.request.has_value()) std::abort();
    if (whole.request && (whole.request->body != slow.request->body || whole.request->path != slow.request->path))
        std::abort();
    check_body(whole.request ? std::string_view(whole.request->body) : bytes);
    return 0;
}
