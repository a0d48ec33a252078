#pragma once
// The shared secret that ranks connecting over TCP prove to each other: docs/ranks.md.

#include <string>

#include "calm/ranks/detail/tcp_messages.hpp"

namespace calm::apps {

// As tcp_endpoint stores it.
struct ranks_trust {
    std::string secret;
    tcp_mac_function mac = nullptr;
    bool insecure = false;
};

// Reads the secret from the environment: CALM_RANKS_SECRET, or the file named by CALM_RANKS_SECRET_FILE, or no secret
// if CALM_RANKS_INSECURE is set. By default it is the user's own secret in ~/.config/calm/ranks-secret, created on
// first use; none if there is no such folder or no OpenSSL. Throws errc::usage for invalid values, and
// errc::distributed for a file that others may read.
ranks_trust trust_of_ranks();

}  // namespace calm::apps
