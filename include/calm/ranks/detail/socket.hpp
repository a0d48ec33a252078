#pragma once
// Sockets for tcp.hpp (POSIX, Linux): listening, connecting, sending and receiving without waiting.

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"

namespace calm::detail {

inline std::string system_text(int code) {
    return std::generic_category().message(code);
}

// An IP address and a port.
struct socket_address {
    sockaddr_storage bytes{};
    socklen_t size = 0;

    [[nodiscard]] sockaddr const* get() const { return reinterpret_cast<sockaddr const*>(&bytes); }
    [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
    void set_port(std::uint16_t port) {
        if (bytes.ss_family == AF_INET6)
            reinterpret_cast<sockaddr_in6*>(&bytes)->sin6_port = htons(port);
        else
            reinterpret_cast<sockaddr_in*>(&bytes)->sin_port = htons(port);
    }
    [[nodiscard]] std::uint16_t port() const {
        return ntohs(bytes.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 const*>(&bytes)->sin6_port
                                                 : reinterpret_cast<sockaddr_in const*>(&bytes)->sin_port);
    }
    friend bool operator==(socket_address const& a, socket_address const& b) {
        return a.size == b.size && std::memcmp(&a.bytes, &b.bytes, a.size) == 0;
    }
};

// Whether only processes on this machine can reach it: 127.0.0.0/8, or ::1.
inline bool is_loopback(socket_address const& a) {
    if (a.bytes.ss_family == AF_INET)
        return ntohl(reinterpret_cast<sockaddr_in const*>(&a.bytes)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<sockaddr_in6 const*>(&a.bytes)->sin6_addr) != 0;
}

// "127.0.0.1:29500", "[::1]:29500".
inline std::string address_text(socket_address const& a) {
    std::array<char, NI_MAXHOST> host{};
    if (::getnameinfo(a.get(), a.size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
    bool const brackets = a.bytes.ss_family == AF_INET6;
    return (brackets ? "[" : "") + std::string(host.data()) + (brackets ? "]:" : ":") + std::to_string(a.port());
}

// The addresses (IPv4 and IPv6) of a host name or of a numeric address; an IPv6 address may have brackets. Throws
// errc::distributed if there is none; `source` names the setting in errors.
inline std::vector<socket_address> addresses_of(std::string const& host, std::uint16_t port,
                                                std::string const& source = "the host") {
    bool const brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    auto const name = brackets ? host.substr(1, host.size() - 2) : host;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    int const code = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
    std::unique_ptr<addrinfo, void (*)(addrinfo*)> const list(found, [](addrinfo* a) {
        if (a != nullptr) ::freeaddrinfo(a);
    });
    std::vector<socket_address> all;
    for (auto const* a = found; code == 0 && a != nullptr; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
        socket_address address;
        std::memcpy(&address.bytes, a->ai_addr, a->ai_addrlen);
        address.size = a->ai_addrlen;
        address.set_port(port);
        if (std::ranges::find(all, address) == all.end()) all.push_back(address);
    }
    require(!all.empty(), errc::distributed, "expected in ", source,
            " a name or an address of the machine of rank 0, found '", host,
            "': ", code != 0 ? ::gai_strerror(code) : "it has no address");
    return all;
}

// A non-blocking TCP socket, or an empty one.
class tcp_socket {
public:
    tcp_socket() = default;
    explicit tcp_socket(int number) : number_(number) {}
    tcp_socket(tcp_socket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    tcp_socket& operator=(tcp_socket&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~tcp_socket() { close(); }
    // Keeps errno.
    void close() {
        int const before = errno;
        if (number_ >= 0) ::close(std::exchange(number_, -1));
        errno = before;
    }

    [[nodiscard]] explicit operator bool() const { return number_ >= 0; }
    [[nodiscard]] int number() const { return number_; }
    // The addresses of this end and of the other end.
    [[nodiscard]] socket_address here() const { return address(::getsockname); }
    [[nodiscard]] socket_address there() const { return address(::getpeername); }
    // Whether it is connected to itself, which can happen at a port where no process listens.
    [[nodiscard]] bool is_own_end() const { return here() == there(); }

    // Listens at this address only; port 0 picks a free port. Empty on failure, with the reason in errno.
    static tcp_socket listening(socket_address const& at) {
        auto made = of_family(at.bytes.ss_family);
        int const on = 1;
        if (!made || ::setsockopt(made.number_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
            ::bind(made.number_, at.get(), at.size) != 0 || ::listen(made.number_, SOMAXCONN) != 0)
            made.close();
        return made;
    }
    // The next incoming connection, or an empty socket. Throws errc::distributed if the system has no room for another.
    [[nodiscard]] tcp_socket accept() const {
        tcp_socket made(::accept4(number_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (made) made.begin();
        require(made || (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM), errc::distributed,
                "expected room for another connection, found: ", system_text(errno),
                "; allow more open files (ulimit -n)");
        return made;
    }
    // Connects to a listener. Empty if there is none, or after `milliseconds`; errno has the reason.
    static tcp_socket connected(socket_address const& to, int milliseconds) {
        auto made = of_family(to.bytes.ss_family);
        if (!made) return made;
        int code = ::connect(made.number_, to.get(), to.size) == 0 ? 0 : errno;
        if (code == EINPROGRESS) {
            pollfd wait{made.number_, POLLOUT, 0};
            socklen_t size = sizeof code;
            if (::poll(&wait, 1, milliseconds) != 1)
                code = ETIMEDOUT;
            else if (::getsockopt(made.number_, SOL_SOCKET, SO_ERROR, &code, &size) != 0)
                code = errno;
        }
        if (code == 0 && made.is_own_end()) code = ECONNREFUSED;
        if (code == 0)
            made.begin();
        else
            made.close();
        errno = code;
        return made;
    }

    // Bytes sent or received, 0 if none can be now; nothing if the other end is gone.
    [[nodiscard]] std::optional<std::size_t> send(std::span<std::byte const> first,
                                                  std::span<std::byte const> second = {}) const {
        std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(first.data()), first.size()},
                                   iovec{const_cast<std::byte*>(second.data()), second.size()}};
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = parts.size();
        return moved(::sendmsg(number_, &message, MSG_NOSIGNAL));
    }
    [[nodiscard]] std::optional<std::size_t> receive(std::span<std::byte> place) const {
        auto const received = ::recv(number_, place.data(), place.size(), 0);
        return received == 0 ? std::nullopt : moved(received);
    }
    // Ends the outgoing stream: the other end reads everything sent, then the end.
    void end_sending() const { ::shutdown(number_, SHUT_WR); }

private:
    static tcp_socket of_family(int family) {
        return tcp_socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    }
    // Sends small messages at once, and probes a connection that is silent for hours.
    void begin() const {
        int const on = 1;
        ::setsockopt(number_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        ::setsockopt(number_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    static std::optional<std::size_t> moved(ssize_t bytes) {
        if (bytes >= 0) return static_cast<std::size_t>(bytes);
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
        return std::nullopt;
    }
    template <class Name> [[nodiscard]] socket_address address(Name const& name) const {
        socket_address found;
        found.size = sizeof found.bytes;
        name(number_, found.get(), &found.size);
        return found;
    }

    int number_ = -1;
};

}  // namespace calm::detail
