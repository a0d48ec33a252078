#pragma once
// Addresses that only this machine reaches.

#include <string>

namespace calm::apps {

// Whether only this machine reaches an address.
inline bool is_loopback(std::string const& address) {
    return address == "localhost" || address == "::1" || address.rfind("127.", 0) == 0;
}

}  // namespace calm::apps
