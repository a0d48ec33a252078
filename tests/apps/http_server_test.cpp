// The HTTP server holds its limits and its protocol whatever a client sends, or does not send or read.

#include "serve/http_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "serve/http_reader.hpp"
#include "support/happens.hpp"
#include "support/sanitized.hpp"
#include "support/sentences.hpp"

using calm::errc;
using calm::apps::http_answer;
using calm::apps::http_limits;
using calm::apps::http_reader;
using calm::apps::http_request;
using calm::apps::http_server;
using calm::test::happens;
using calm::test::has;

namespace {

constexpr std::chrono::seconds patience{20};  // for what happens at once

// Small limits; those in time are long for what must not depend on them.
http_limits small_limits() {
    http_limits limits;
    limits.header_bytes = 1024;
    limits.body_bytes = 5000;
    limits.connections = 100;
    limits.unread_bytes = 65536;
    return limits;
}

// A server on a thread of its own. POST is echoed; the test answers GET /held; GET of another path gets "path?query".
class served {
public:
    explicit served(http_limits limits = small_limits(), std::vector<std::string> hosts = {"localhost", "::1"}) :
        server_(std::make_unique<http_server>("127.0.0.1", std::uint16_t{0}, std::move(hosts), limits,
                                              [this](http_request request, std::shared_ptr<http_answer> answer) {
                                                  handle(std::move(request), std::move(answer));
                                              })),
        thread_([this] { server_->run({}); }) {}
    served(served const&) = delete;
    served& operator=(served const&) = delete;
    ~served() { end(); }

    http_server& operator*() { return *server_; }
    http_server* operator->() { return server_.get(); }
    // Ends the server; answers may still be held.
    void end() {
        if (server_ == nullptr) return;
        server_->stop();
        thread_.join();
        server_.reset();
    }
    // The answer to the next GET /held.
    std::shared_ptr<http_answer> held() {
        std::unique_lock lock(mutex_);
        BOOST_TEST_REQUIRE(arrived_.wait_for(lock, patience, [this] { return !held_.empty(); }));
        auto first = std::move(held_.front());
        held_.erase(held_.begin());
        return first;
    }

private:
    void handle(http_request request, std::shared_ptr<http_answer> answer) {
        if (request.path == "/held") {
            std::lock_guard const lock(mutex_);
            held_.push_back(std::move(answer));
            arrived_.notify_all();
        } else if (request.path == "/injected") {
            answer->send(200, "text/plain\r\nBad: 1", "", {{"Good", "1"}, {"Bad", "1\r\nBad: 1"}, {"Bad name", "1"}});
        } else if (request.path != "/dropped") {
            auto const target = request.path + "?" + request.query;
            answer->send(200, "text/plain", request.method == "POST" ? request.body : target);
        }
    }

    std::mutex mutex_;
    std::condition_variable arrived_;
    std::vector<std::shared_ptr<http_answer>> held_;
    std::unique_ptr<http_server> server_;
    std::thread thread_;
};

class client {
public:
    explicit client(std::uint16_t port, int receive_bytes = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
        timeval const most{patience.count(), 0};
        ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
        ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
        if (receive_bytes > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
        port_ = port;
    }
    client(client const&) = delete;
    client& operator=(client const&) = delete;
    ~client() { close(); }

    bool connect() const {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(port_);
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return ::connect(socket_, reinterpret_cast<sockaddr const*>(&at), sizeof at) == 0;
    }
    // False if the server has closed the connection.
    bool send(std::string_view bytes) const {
        while (!bytes.empty()) {
            auto const sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) return false;
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    }
    // What comes until it contains `end`, or until the server closes the connection.
    std::string receive_until(std::string_view end) {
        for (;;) {
            if (auto const at = end.empty() ? std::string::npos : received_.find(end); at != std::string::npos) {
                auto first = received_.substr(0, at + end.size());
                received_.erase(0, first.size());
                return first;
            }
            char bytes[4096];
            auto const count = ::recv(socket_, bytes, sizeof bytes, 0);
            if (count < 0 && errno != ECONNRESET) return std::exchange(received_, {}) + "<timeout>";
            if (count <= 0) return std::exchange(received_, {});
            received_.append(bytes, static_cast<std::size_t>(count));
        }
    }
    std::string receive_all() { return receive_until(""); }
    void close() {
        if (socket_ >= 0) ::close(std::exchange(socket_, -1));
    }
    void reset() {
        linger const at_once{1, 0};
        ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close();
    }

private:
    int socket_;
    std::uint16_t port_;
    std::string received_;
};

// All that comes until the server closes the connection.
std::string answer_to(served& server, std::string_view request) {
    client one(server->port());
    BOOST_TEST_REQUIRE(one.connect());
    one.send(request);
    return one.receive_all();
}

int status_of(std::string_view answer) {
    return answer.starts_with("HTTP/1.1 ") ? std::stoi(std::string(answer.substr(9, 3))) : 0;
}

std::string repeated(std::string_view text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
}

std::string get(std::string_view path, std::string_view headers = "") {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) + "\r\n";
}

std::string const closes = "Connection: close\r\n";
std::string const post = "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
std::string const chunks = post + "Transfer-Encoding: chunked\r\n\r\n";

struct attempt {
    std::string request;
    int status;
};

void check_statuses(std::vector<attempt> const& attempts) {
    served server;
    for (auto const& [request, status] : attempts) {
        auto const answer = answer_to(server, request);
        BOOST_TEST(status_of(answer) == status, "'" << request.substr(0, 200) << "' is answered: " << answer);
        if (status >= 400)
            BOOST_TEST(has(answer, "{\"error\":{\"message\":\"expected "), "no error in JSON: " << answer);
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_whole_answer_has_few_headers_and_its_length) {
    served server;
    BOOST_TEST(answer_to(server, get("/a/b", closes)) ==
               "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\nX-Content-Type-Options: "
               "nosniff\r\nContent-Length: 5\r\nConnection: close\r\n\r\n/a/b?");
    BOOST_TEST(answer_to(server, "HEAD /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                   .ends_with("Content-Length: 3\r\nConnection: close\r\n\r\n"));
    BOOST_TEST(answer_to(server, "GET /a?b=c?d HTTP/1.0\r\nHost: localhost\r\n\r\n").ends_with("\r\n\r\n/a?b=c?d"));
    auto const checked = answer_to(server, get("/injected", closes));
    BOOST_TEST(has(checked, "Good: 1"));
    BOOST_TEST(!has(checked, "Bad"));
}

BOOST_AUTO_TEST_CASE(requests_on_one_connection_are_answered_one_after_another) {
    served server;
    client one(server->port());
    BOOST_TEST_REQUIRE(one.connect());
    one.send(get("/1") + "\r\n" + get("/held") + get("/3") + chunks +
             "3\r\nabc\r\n2;x=\"y\"\r\nde\r\n0\r\nX: y\r\n\r\n" + get("/5"));
    BOOST_TEST(one.receive_until("/1?").starts_with("HTTP/1.1 200 OK\r\n"));
    server.held()->send(202, "text/plain", "held");
    BOOST_TEST(one.receive_until("held").starts_with("HTTP/1.1 202 Accepted\r\n"));
    BOOST_TEST(one.receive_until("/3?").starts_with("HTTP/1.1 200 OK\r\n"));
    BOOST_TEST(one.receive_all().ends_with("\r\n\r\nabcde"));
}

BOOST_AUTO_TEST_CASE(a_foreign_host_or_origin_is_refused) {
    auto const host = [](std::string const& value) { return "GET / HTTP/1.1\r\n" + closes + value + "\r\n"; };
    auto const origin = [](std::string const& value) { return get("/", closes + "Origin: " + value + "\r\n"); };
    check_statuses({
        {host("Host: LOCALHOST:99\r\n"), 200},
        {host("Host: [::1]:8080\r\n"), 200},
        {host("Host: localhost.example.org\r\n"), 403},
        {host("Host: [::2]\r\n"), 403},
        {host("Host: \r\n"), 403},
        {host("Host: example.org/localhost\r\n"), 400},
        {host("Host: localhost:1:2\r\n"), 400},
        {host(""), 400},
        {host("Host: localhost\r\nHost: localhost\r\n"), 400},
        {"GET http://localhost/a HTTP/1.1\r\n" + closes + "Host: localhost\r\n\r\n", 200},
        {"GET http://example.org/a HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        {"GET a HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        {origin("http://localhost"), 200},
        {origin("https://localhost"), 403},
        {origin("http://localhost:1"), 403},
        {origin("null"), 403},
    });
}

BOOST_AUTO_TEST_CASE(ambiguous_and_malformed_requests_are_refused) {
    check_statuses({
        {post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {post + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n", 400},
        {post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
        {post + "Content-Length: +1\r\n\r\na", 400},
        {post + "Content-Length: 18446744073709551616\r\n\r\n", 400},
        {post + "Transfer-Encoding: identity\r\n\r\n", 400},
        {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
        {post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
        {"POST / HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {chunks + "fffffffffffffffff\r\n", 400},
        {chunks + "-1\r\nabc\r\n", 400},
        {chunks + "1\r\nabc\r\n0\r\n\r\n", 400},
        {chunks + "1;a=\"\n\"\r\na\r\n0\r\n\r\n", 400},
        {get("/", "X: a\r\n folded\r\n"), 400},
        {"GET / HTTP/1.1\nHost: localhost\n\n", 400},
        {get("/", "X: a\rb\r\n"), 400},
        {get("/", std::string("X: \0\r\n", 6)), 400},
        {"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 400},
        {"\x16\x03\x01\x02", 400},
        {post + "Expect: more\r\nContent-Length: 1\r\n\r\n", 417},
    });
}

BOOST_AUTO_TEST_CASE(requests_over_the_limits_are_refused) {
    check_statuses({
        {get("/", "X: " + repeated("a", 2000) + "\r\n"), 431},
        {get("/", repeated("X: a\r\n", 300)), 431},
        {"GET /" + repeated("a", 2000), 431},
        {post + "Content-Length: 5000\r\n\r\n" + repeated("a", 5000), 200},
        {post + "Content-Length: 5001\r\n\r\n" + repeated("a", 5001), 413},
        {chunks + "1388\r\n" + repeated("a", 5000) + "\r\n0\r\n\r\n", 200},
        {chunks + "1388\r\n" + repeated("a", 5000) + "\r\n1\r\n", 413},
        {chunks + "ffffffffffffffff\r\n", 413},
        {chunks + "1;" + repeated("a", 2000), 431},
        {chunks + "0\r\n" + repeated("X: a\r\n", 300), 431},
    });
}

BOOST_AUTO_TEST_CASE(a_request_is_the_same_however_it_is_split) {
    auto const limits = small_limits();
    std::vector<std::string> const hosts;
    auto const text = "\r\n" + chunks + "3\r\nabc\r\na;x=y\r\n0123456789\r\n0\r\nX: y\r\n\r\n" + chunks + "0\r\n\r\n";
    for (std::size_t size = 1; size < text.size(); ++size) {
        http_reader reader(limits, hosts);
        std::string input, bodies;
        for (std::size_t at = 0; at < text.size(); at += size) {
            input += text.substr(at, size);
            for (bool again = true; again;) {
                input.erase(0, reader.read(input));
                again = reader.is_complete();
                if (!again) continue;
                bodies += reader.take().body + ".";
                reader.reset();
            }
        }
        BOOST_TEST(!reader.fault());
        BOOST_TEST(bodies == "abc0123456789..");
    }
}

BOOST_AUTO_TEST_CASE(a_client_that_expects_100_continue_gets_it) {
    served server;
    client one(server->port());
    BOOST_TEST_REQUIRE(one.connect());
    one.send(post + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    BOOST_TEST(one.receive_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
    one.send("abc");
    BOOST_TEST(one.receive_all().ends_with("\r\n\r\nabc"));
}

BOOST_AUTO_TEST_CASE(chunks_of_a_stream_are_sent_at_once) {
    served server;
    client one(server->port());
    BOOST_TEST_REQUIRE(one.connect());
    one.send(get("/held") + get("/next"));
    auto const answer = server.held();
    answer->begin_stream("text/event-stream");
    BOOST_TEST(has(one.receive_until("\r\n\r\n"), "Transfer-Encoding: chunked\r\n"));
    for (int i = 0; i < 100; ++i) {
        answer->write("chunk " + std::to_string(i));
        answer->write("");
        auto const text = "chunk " + std::to_string(i) + "\r\n";
        BOOST_TEST(one.receive_until(text) == (i < 10 ? "7\r\n" : "8\r\n") + text);
    }
    answer->finish();
    BOOST_TEST(one.receive_until("\r\n\r\n") == "0\r\n\r\n");
    BOOST_TEST(one.receive_until("/next?").starts_with("HTTP/1.1 200 OK\r\n"));
    BOOST_TEST(!answer->gone());
}

BOOST_AUTO_TEST_CASE(clients_of_http_1_0_get_a_stream_without_chunks) {
    served server;
    client one(server->port());
    BOOST_TEST_REQUIRE(one.connect());
    one.send("GET /held HTTP/1.0\r\nHost: localhost\r\n\r\n");
    auto const answer = server.held();
    answer->begin_stream("text/plain");
    answer->write("a");
    answer->write("b");
    answer->finish();
    BOOST_TEST(one.receive_all().ends_with("Connection: close\r\n\r\nab"));
}

BOOST_AUTO_TEST_CASE(a_client_that_disconnects_is_noticed_while_its_answer_is_computed) {
    served server;
    for (auto const* const next : {"", "GET /next HTTP/1.1\r\nHost: lo"}) {
        for (bool const resets : {false, true}) {
            for (bool const streams : {false, true}) {
                client one(server->port());
                BOOST_TEST_REQUIRE(one.connect());
                one.send(get("/held") + next);
                auto const answer = server.held();
                if (streams) answer->begin_stream("text/plain");
                BOOST_TEST(!answer->gone());
                resets ? one.reset() : one.close();
                BOOST_TEST(happens([&] { return answer->gone(); }, patience));
                answer->write("ignored");
                answer->finish();
            }
        }
    }
    BOOST_TEST(happens([&] { return server->connections() == 0; }, patience));
}

BOOST_AUTO_TEST_CASE(a_client_that_does_not_read_its_stream_is_closed) {
    served server;
    client one(server->port(), 4096);
    BOOST_TEST_REQUIRE(one.connect());
    one.send(get("/held"));
    auto const answer = server.held();
    answer->begin_stream("text/plain");
    BOOST_TEST(happens(
        [&] {
            answer->write(std::string(1000, 'a'));
            return answer->gone();
        },
        patience));
    BOOST_TEST(happens([&] { return server->connections() == 0; }, patience));
}

BOOST_AUTO_TEST_CASE(a_dropped_answer_closes_its_connection) {
    served server;
    BOOST_TEST(answer_to(server, get("/dropped")) == "");
    client one(server->port());
    BOOST_TEST_REQUIRE(one.connect());
    one.send(get("/held"));
    auto answer = server.held();
    answer->begin_stream("text/plain");
    answer->write("begun");
    answer.reset();
    BOOST_TEST(one.receive_all().ends_with("\r\n\r\n5\r\nbegun\r\n"));
}

BOOST_AUTO_TEST_CASE(slow_clients_are_closed) {
    auto limits = small_limits();
    limits.request_time = limits.idle_time = limits.write_time = std::chrono::seconds(1);
    served server(limits);
    client header(server->port()), body(server->port()), silent(server->port()), between(server->port());
    client unread(server->port(), 4096);
    for (auto const* const one : {&header, &body, &silent, &between, &unread}) BOOST_TEST_REQUIRE(one->connect());
    header.send("GET / HT");
    body.send(post + "Content-Length: 5\r\n\r\n1234");
    between.send(get("/"));
    unread.send(get("/held"));
    auto const answer = server.held();
    answer->send(200, "text/plain", std::string(10'000'000, 'a'));
    BOOST_TEST(status_of(header.receive_all()) == 408);
    BOOST_TEST(status_of(body.receive_all()) == 408);
    BOOST_TEST(silent.receive_all() == "");
    BOOST_TEST(between.receive_all().ends_with("\r\n\r\n/?"));
    BOOST_TEST(happens([&] { return answer->gone(); }, patience));
    BOOST_TEST(unread.receive_all().size() < 10'000'000U);
}

BOOST_AUTO_TEST_CASE(a_new_connection_closes_the_longest_idle_one) {
    auto limits = small_limits();
    limits.connections = 3;
    served server(limits);
    std::vector<std::unique_ptr<client>> all;
    for (int i = 0; i < 4; ++i) {
        auto& one = *all.emplace_back(std::make_unique<client>(server->port()));
        BOOST_TEST_REQUIRE(one.connect());
        one.send(get("/"));
        one.receive_until("/?");
    }
    BOOST_TEST(all[0]->receive_all() == "");
    BOOST_TEST(server->connections() == 3U);
}

// Otherwise a client could keep all others out for request_time by requests that it does not end.
BOOST_AUTO_TEST_CASE(stalled_requests_do_not_block_others) {
    auto limits = small_limits();
    limits.connections = 3;
    served server(limits);
    std::vector<std::unique_ptr<client>> all;
    for (int i = 0; i < 3; ++i) {
        auto& one = *all.emplace_back(std::make_unique<client>(server->port()));
        BOOST_TEST_REQUIRE(one.connect());
        one.send("GET / HT");
        BOOST_TEST(happens([&] { return server->connections() == static_cast<std::size_t>(i) + 1; }, patience));
    }
    client next(server->port());
    BOOST_TEST_REQUIRE(next.connect());
    next.send(get("/"));
    BOOST_TEST(next.receive_until("/?").ends_with("/?"));
    BOOST_TEST(all[0]->receive_all() == "");  // silent longest
    all[2]->send("TP/1.1\r\nHost: localhost\r\n\r\n");
    BOOST_TEST(status_of(all[2]->receive_until("/?")) == 200);
}

BOOST_AUTO_TEST_CASE(connections_over_the_limit_get_status_503) {
    auto limits = small_limits();
    limits.connections = 20;
    served server(limits);
    std::vector<std::unique_ptr<client>> all;
    std::vector<std::shared_ptr<http_answer>> answers;  // so that no connection is idle
    for (int i = 0; i < 20; ++i) {
        auto& one = *all.emplace_back(std::make_unique<client>(server->port()));
        BOOST_TEST_REQUIRE(one.connect());
        one.send(get("/held"));
        answers.push_back(server.held());
    }
    BOOST_TEST(server->connections() == 20U);
    for (int i = 0; i < 5; ++i) BOOST_TEST(status_of(answer_to(server, get("/"))) == 503);
    all.pop_back();
    BOOST_TEST(happens([&] { return status_of(answer_to(server, get("/", closes))) == 200; }, patience));
}

BOOST_AUTO_TEST_CASE(connections_wait_while_there_is_no_file_descriptor) {
    if (calm::test::is_sanitized) return;  // UBSan opens pipes
    served server;
    client before(server->port()), during(server->port());
    BOOST_TEST_REQUIRE(before.connect());
    before.send(get("/"));
    BOOST_TEST(status_of(before.receive_until("/?")) == 200);
    rlimit most{};
    ::getrlimit(RLIMIT_NOFILE, &most);
    auto none = most;
    none.rlim_cur = 3;
    ::setrlimit(RLIMIT_NOFILE, &none);
    bool const connected = during.connect();
    during.send(get("/"));
    before.send(get("/again"));
    auto const answer = before.receive_until("/again?");
    ::setrlimit(RLIMIT_NOFILE, &most);
    BOOST_TEST(connected);
    BOOST_TEST(status_of(answer) == 200);
    BOOST_TEST(status_of(during.receive_until("/?")) == 200);
}

BOOST_AUTO_TEST_CASE(a_draining_server_finishes_the_answers_under_way) {
    served server;
    client idle(server->port()), busy(server->port());
    BOOST_TEST_REQUIRE((idle.connect() && busy.connect()));
    busy.send(get("/held") + get("/next"));
    auto const answer = server.held();
    answer->begin_stream("text/plain");
    BOOST_TEST(happens([&] { return server->connections() == 2; }, patience));
    server->drain();
    BOOST_TEST(idle.receive_all() == "");
    BOOST_TEST(happens([&] { return !client(server->port()).connect(); }, patience));
    answer->write("late");
    answer->finish();
    BOOST_TEST(busy.receive_all().ends_with("4\r\nlate\r\n0\r\n\r\n"));
    busy.close();
    BOOST_TEST(happens([&] { return server->connections() == 0; }, patience));
}

BOOST_AUTO_TEST_CASE(answers_may_outlive_the_server) {
    served server;
    client one(server->port());
    BOOST_TEST_REQUIRE(one.connect());
    one.send(get("/held"));
    auto const answer = server.held();
    answer->begin_stream("text/plain");
    server.end();
    BOOST_TEST(answer->gone());
    answer->write("ignored");
    answer->finish();
}

BOOST_AUTO_TEST_CASE(an_address_in_use_is_an_error) {
    served server;
    auto const second = [&](std::string const& address) {
        return calm::test::sentence_of(errc::storage, [&] { http_server(address, server->port(), {}, {}, {}); });
    };
    BOOST_TEST(has(second("127.0.0.1"), "expected to listen on 127.0.0.1 port " + std::to_string(server->port())));
    BOOST_TEST(has(second("nowhere"), "found 'nowhere'"));
}
