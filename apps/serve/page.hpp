#pragma once
// Documents that the server contains.

#include <string>
#include <string_view>

namespace calm::apps {

// The page of the server (serve/page.html).
std::string_view page_of_server();
// A Content-Security-Policy that allows the script and the style of a page, and nothing from elsewhere.
std::string policy_of_page(std::string_view page);
// The OpenAPI description of the server (serve/openapi.json).
std::string_view openapi_of_server();

}  // namespace calm::apps
