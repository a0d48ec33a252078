#pragma once
// Errors of the OpenAI-style API, which clients know by these fields.

#include <nlohmann/json.hpp>
#include <string>

#include "strict_json.hpp"

namespace calm::apps {

// A request that is refused.
struct api_error {
    int status = 400;
    std::string message;  // expected, found, what to do
    std::string param;    // the field to blame, or empty
    std::string code;     // "context_length_exceeded", ..., or empty

    // {"error": {...}}
    [[nodiscard]] std::string json() const {
        auto const or_null = [](std::string const& text) {
            return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
        };
        return json_line(nlohmann::ordered_json{{"error",
                                                 {{"message", message},
                                                  {"type", status < 500 ? "invalid_request_error" : "server_error"},
                                                  {"param", or_null(param)},
                                                  {"code", or_null(code)}}}});
    }
};

}  // namespace calm::apps
