#pragma once
// What tcp.hpp needs of sockets (POSIX, Linux): who listens, who connects, and bytes as far as they go without waiting.

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "calm/base/error.hpp"

namespace calm::detail {

inline std::string system_text(int code) {
    return std::generic_category().message(code);
}

// An address of a machine's interface, and a port there.
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
};

// The first address that a host's name has, or a number stands for. Throws errc::distributed where there is none.
inline socket_address address_of(std::string const& host, std::uint16_t port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    int const code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    std::unique_ptr<addrinfo, void (*)(addrinfo*)> const all(found, [](addrinfo* a) {
        if (a != nullptr) ::freeaddrinfo(a);
    });
    require(code == 0 && found != nullptr, errc::distributed, "expected an address of the machine of rank 0, found '",
            host, "': ", code != 0 ? ::gai_strerror(code) : "it has none");
    socket_address address;
    std::copy_n(reinterpret_cast<std::byte const*>(found->ai_addr), found->ai_addrlen,
                reinterpret_cast<std::byte*>(&address.bytes));
    address.size = found->ai_addrlen;
    address.set_port(port);
    return address;
}

// A socket of TCP, whose calls return at once; none where it has no number.
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
    void close() {
        if (number_ >= 0) ::close(std::exchange(number_, -1));
    }

    [[nodiscard]] explicit operator bool() const { return number_ >= 0; }
    [[nodiscard]] int number() const { return number_; }
    // The address of this end, or of the other.
    [[nodiscard]] socket_address here() const { return address(::getsockname); }
    [[nodiscard]] socket_address there() const { return address(::getpeername); }

    // One that listens at an address, and nowhere else; port 0 becomes one that is free. Throws errc::distributed.
    static tcp_socket listening(socket_address const& at, std::string const& name) {
        tcp_socket made = of_family(at.bytes.ss_family);
        int const on = 1;
        ::setsockopt(made.number_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (::bind(made.number_, at.get(), at.size) != 0 || ::listen(made.number_, SOMAXCONN) != 0)
            throw error(errc::distributed, sentence("expected an address of this machine and a free port to meet the "
                                                    "other ranks at, found ",
                                                    name, ": ", system_text(errno)));
        return made;
    }
    // The next who connected, if somebody has.
    [[nodiscard]] tcp_socket accept() const {
        tcp_socket made(::accept4(number_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (made) made.begin();
        return made;
    }
    // A connection to who listens there, or none after so many milliseconds.
    static tcp_socket connected(socket_address const& to, int milliseconds) {
        tcp_socket made = of_family(to.bytes.ss_family);
        if (::connect(made.number_, to.get(), to.size) != 0 && errno != EINPROGRESS) return {};
        pollfd wait{made.number_, POLLOUT, 0};
        int code = 0;
        socklen_t size = sizeof code;
        if (::poll(&wait, 1, milliseconds) != 1 ||
            ::getsockopt(made.number_, SOL_SOCKET, SO_ERROR, &code, &size) != 0 || code != 0)
            return {};
        made.begin();
        return made;
    }

    // How many bytes went or came, 0 where none can now; nothing where the other end is gone.
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
        auto const came = ::recv(number_, place.data(), place.size(), 0);
        return came == 0 ? std::nullopt : moved(came);
    }
    // Nothing more is sent: the other end finds the end behind what was.
    void end_sending() const { ::shutdown(number_, SHUT_WR); }

private:
    static tcp_socket of_family(int family) {
        tcp_socket made(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        require(static_cast<bool>(made), errc::distributed,
                "expected a socket of the system, found: ", system_text(errno));
        return made;
    }
    // Small messages go at once, and who is silent for hours is asked whether it is there.
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
