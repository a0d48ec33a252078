#pragma once
// What ranks that meet by TCP prove to each other that they know: docs/ranks.md.

#include <string>

#include "calm/ranks/tcp_messages.hpp"

namespace calm::apps {

// As tcp_place has it.
struct ranks_trust {
    std::string secret;
    tcp_mac_function mac = nullptr;
    bool insecure = false;
};

// From the environment: CALM_RANKS_SECRET, or the file that CALM_RANKS_SECRET_FILE names, or none and insecure where
// CALM_RANKS_INSECURE is set. Where none of them is, the user's own secret, which the first program that looks for it
// puts into ~/.config/calm/ranks-secret; none where there is no such folder, or no OpenSSL. Throws errc::usage for
// values that cannot be, and errc::distributed for a file that others may read.
ranks_trust trust_of_ranks();

}  // namespace calm::apps
