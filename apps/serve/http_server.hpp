#pragma once
// An HTTP/1.1 server: one thread for all connections, with limits on everything that a client can make it hold.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace calm::apps {

// A request whose body has arrived and that is within the limits.
struct http_request {
    std::string method;         // "GET", "POST", ...; HEAD arrives as GET, and its answer is sent without the body
    std::string path;           // of the target, before any '?', as sent
    std::string query;          // after '?', or empty
    std::string body;           // or empty
    std::string content_type;   // or empty
    std::string authorization;  // or empty
    std::string client;         // its address
};

// Whether only this machine reaches an address; localhost is one.
bool is_loopback(std::string const& address);

// What a client can make the server hold or wait for.
struct http_limits {
    std::size_t header_bytes = 16384;       // of a request
    std::size_t body_bytes = 4 << 20;       // of a request
    std::size_t connections = 1024;         // at the same time; a new one closes the longest silent one, or gets 503
    std::size_t unread_bytes = 1 << 20;     // of an answer that its client does not read; more closes it
    std::chrono::seconds request_time{30};  // for a whole request to arrive
    std::chrono::seconds idle_time{60};     // for the next request on a connection to begin
    std::chrono::seconds write_time{30};    // for a client to take more of its answer
};

// The answer to one request, from any thread. Either send() once, or begin_stream(), write() any number of times and
// finish(). Calls for a client that has gone do nothing. An answer that is dropped unfinished closes its connection.
class http_answer {
public:
    using header = std::pair<std::string, std::string>;

    http_answer() = default;
    http_answer(http_answer const&) = delete;
    http_answer& operator=(http_answer const&) = delete;
    virtual ~http_answer() = default;

    // A whole answer. Headers with a line end or another invalid character are left out. The server itself sets
    // Content-Length, Transfer-Encoding and Connection.
    virtual void send(int status, std::string content_type, std::string body, std::vector<header> more = {}) = 0;
    // Begins an answer with status 200 that is sent in chunks, as they come.
    virtual void begin_stream(std::string content_type) = 0;
    virtual void write(std::string chunk) = 0;
    virtual void finish() = 0;
    // Whether the client has gone, or the answer was closed because it did not read it.
    [[nodiscard]] virtual bool gone() const = 0;
};

// Called on the server's thread for each request; must not block, and must not throw: run() would end.
using http_handler = std::function<void(http_request, std::shared_ptr<http_answer>)>;

// Listens on an address. Requests whose Host header names none of `hosts` (any port), or whose Origin is another than
// http://Host, are refused with 403: a page of another site cannot use a server on this machine (DNS rebinding).
class http_server {
public:
    // Port 0 takes a free one. An empty list of hosts allows every Host. Throws errc::storage if it cannot listen.
    http_server(std::string const& address, std::uint16_t port, std::vector<std::string> hosts, http_limits limits,
                http_handler handler);
    http_server(http_server const&) = delete;
    http_server& operator=(http_server const&) = delete;
    ~http_server();

    [[nodiscard]] std::uint16_t port() const;       // that it listens on
    [[nodiscard]] std::size_t connections() const;  // open now
    // Serves until stop(), on this thread. `tick` is called about every 50 ms on this thread.
    void run(std::function<void()> const& tick);
    // From here on accepts no connections, and closes each one after the answer under way.
    void drain();
    // Closes everything and ends run(). From any thread.
    void stop();

private:
    class state;
    std::shared_ptr<state> state_;
};

}  // namespace calm::apps
