#pragma once
/// \file
/// HMAC-SHA256 by OpenSSL, for ranks that meet by TCP: tcp_endpoint::mac. Empty without <openssl/hmac.h>; links
/// libcrypto (the CMake target calm::openssl).
/// \shows{apps/run/ranks_secret.cpp,mac_of_this_program}

#if __has_include(<openssl/hmac.h>)

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstddef>
#include <span>

#include "calm/base/error.hpp"
#include "calm/ranks/detail/tcp_messages.hpp"

namespace calm {

/// HMAC-SHA256 of a message. Throws errc::distributed if OpenSSL fails.
inline tcp_mac openssl_mac(std::span<std::byte const> key, std::span<std::byte const> message) {
    tcp_mac made;
    unsigned size = 0;
    auto const* const done = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                    reinterpret_cast<unsigned char const*>(message.data()), message.size(),
                                    reinterpret_cast<unsigned char*>(made.data()), &size);
    require(done != nullptr && size == made.size(), errc::distributed,
            "expected an HMAC-SHA256 of OpenSSL, found none");
    return made;
}

}  // namespace calm

#endif
