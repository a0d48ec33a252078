#include "serve/http_server.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/status.hpp>
#include <charconv>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_set>

#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "serve/api_error.hpp"
#include "serve/http_reader.hpp"

namespace calm::apps {

namespace {

namespace asio = boost::asio;
using tcp_socket = asio::ip::tcp::socket;
using http_clock = std::chrono::steady_clock;
using socket_code = boost::system::error_code;

constexpr auto never = http_clock::time_point::max();
constexpr std::chrono::milliseconds tick_interval{50};
constexpr std::chrono::milliseconds accept_pause{200};  // after accept() failed, as it does without free descriptors
constexpr std::chrono::seconds linger_time{2};          // for a client to read the last answer before the close
constexpr std::size_t read_bytes = 16384;               // at once
constexpr std::size_t kernel_bytes = 256 * 1024;        // unsent, per connection, held by the kernel
constexpr std::size_t most_refused = 64;                // connections over the limit that get an answer

bool is_header_name(std::string_view name) {
    return !name.empty() && std::ranges::all_of(name, [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
    });
}

bool is_header_value(std::string_view value) {
    return std::ranges::none_of(value, [](char c) { return (c >= 0 && c < ' ' && c != '\t') || c == '\x7f'; });
}

// Whether the server itself decides on this header.
bool is_framing_header(std::string_view name) {
    return is_same_text(name, "Content-Length") || is_same_text(name, "Transfer-Encoding") ||
           is_same_text(name, "Connection");
}

void add_http_header(std::string& head, std::string_view name, std::string_view value) {
    if (is_header_name(name) && is_header_value(value)) ((((head += name) += ": ") += value) += "\r\n");
}

// The beginning of an answer, without the empty line that ends the headers.
std::string http_head(int status, std::string_view content_type) {
    auto const reason =
        boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(static_cast<unsigned>(status)));
    std::string head = sentence("HTTP/1.1 ", status, " ", std::string_view(reason.data(), reason.size()), "\r\n");
    add_http_header(head, "Content-Type", content_type);
    head += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
    return head;
}

std::string http_error_body(int status, std::string_view message) {
    return api_error{status, std::string(message), "", ""}.json() + "\n";
}

std::string http_chunk(std::string_view bytes) {
    char digits[2 * sizeof(std::size_t)];
    auto const end = std::to_chars(std::begin(digits), std::end(digits), bytes.size(), 16).ptr;
    std::string_view const size(digits, static_cast<std::size_t>(end - digits));
    std::string chunk;
    chunk.reserve(size.size() + bytes.size() + 4);
    return ((((chunk += size) += "\r\n") += bytes) += "\r\n");
}

// A child process must not keep connections open.
void close_on_exec(int descriptor) {
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

asio::ip::tcp::endpoint http_endpoint(std::string const& address, std::uint16_t port) {
    socket_code code;
    auto const parsed = asio::ip::make_address(address, code);
    require(!code, errc::storage, "expected an IP address to listen on, such as 127.0.0.1 or ::1, found ",
            in_quotes(address));
    return {parsed, port};
}

void listen_on(asio::ip::tcp::acceptor& acceptor, asio::ip::tcp::endpoint const& at) {
    socket_code code;
    acceptor.open(at.protocol(), code);
    if (!code) close_on_exec(acceptor.native_handle());
    if (!code) acceptor.set_option(asio::socket_base::reuse_address(true), code);  // in spite of old connections
    if (!code) acceptor.bind(at, code);
    if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
    require(!code, errc::storage, "expected to listen on ", at.address().to_string(), " port ",
            static_cast<unsigned>(at.port()), ", found: ", code.message(),
            "; choose another address or port, or end the program that uses this one");
}

}  // namespace

bool is_loopback(std::string const& address) {
    socket_code code;
    auto const parsed = asio::ip::make_address(address, code);
    return address == "localhost" || (!code && parsed.is_loopback());
}

// All functions but those of `mailbox` and `answer` run on the thread of run().
class http_server::state {
public:
    state(std::string const& address, std::uint16_t port, std::vector<std::string> hosts, http_limits limits,
          http_handler handler);
    state(state const&) = delete;
    state& operator=(state const&) = delete;
    ~state();

    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] std::size_t connections() const { return open_; }
    void run(std::function<void()> const& tick);
    void drain();
    void stop() { io_.stop(); }

private:
    class mailbox;
    class exchange;
    class answer;
    class session;

    void accept();
    void welcome(tcp_socket socket);
    void wait_for_tick(std::function<void()> const& tick);
    void close_expired();
    void close_idle();
    void close_longest_silent();
    void close_all();
    void remove(std::shared_ptr<session> const& one, bool refused);

    http_limits const limits_;
    std::vector<std::string> const hosts_;
    http_handler const handler_;
    asio::io_context io_{1};
    asio::ip::tcp::acceptor acceptor_{io_};
    asio::steady_timer timer_{io_};
    http_clock::time_point accept_again_ = never;
    std::uint16_t port_ = 0;
    std::shared_ptr<mailbox> mailbox_;
    std::unordered_set<std::shared_ptr<session>> sessions_;
    std::atomic<std::size_t> open_ = 0;
    std::size_t refused_ = 0;                  // connections over the limit, still open
    std::array<char, read_bytes> received_{};  // by the session that reads now
};

// Runs functions on the server's thread. Outlives the server, and then drops them.
class http_server::state::mailbox {
public:
    explicit mailbox(asio::io_context& io) : io_(&io) {}
    template <class F> void post(F f) {
        std::lock_guard const lock(mutex_);
        if (io_ != nullptr) asio::post(*io_, std::move(f));
    }
    void close() {
        std::lock_guard const lock(mutex_);
        io_ = nullptr;
    }
    std::atomic<bool> draining = false;

private:
    std::mutex mutex_;
    asio::io_context* io_;
};

// An answer on its way from the handler's threads to the server's.
class http_server::state::exchange {
public:
    struct kind {
        bool is_head = false;
        bool is_http_1_0 = false;
        bool keeps_alive = false;
    };
    enum class progress { open, streaming, complete, dropped };

    exchange(kind what, std::size_t unread_bytes, std::function<void()> notify, std::shared_ptr<mailbox> server) :
        kind_(what), unread_bytes_(unread_bytes), notify_(std::move(notify)), server_(std::move(server)) {}

    void send(int status, std::string_view content_type, std::string_view body,
              std::vector<http_answer::header> const& more) {
        if (status < 200 || status > 999) status = 500;
        bool const has_body = status != 204 && status != 304;
        auto head = http_head(status, content_type);
        if (has_body) add_http_header(head, "Content-Length", std::to_string(body.size()));
        for (auto const& [name, value] : more)
            if (!is_framing_header(name)) add_http_header(head, name, value);
        std::lock_guard const lock(mutex_);
        if (progress_ != progress::open) return;
        end_head(head);
        if (has_body && !kind_.is_head) head += body;
        progress_ = progress::complete;
        queue(head);
    }
    void begin_stream(std::string_view content_type) {
        auto head = http_head(200, content_type);
        if (!kind_.is_http_1_0) head += "Transfer-Encoding: chunked\r\n";
        std::lock_guard const lock(mutex_);
        if (progress_ != progress::open) return;
        end_head(head);
        progress_ = progress::streaming;
        queue(head);
    }
    void write(std::string bytes) {
        if (bytes.empty() || kind_.is_head) return;  // an empty chunk would end the stream
        if (!kind_.is_http_1_0) bytes = http_chunk(bytes);
        std::lock_guard const lock(mutex_);
        if (progress_ != progress::streaming || gone_) return;
        if (unread_ + bytes.size() > unread_bytes_) gone_ = true;
        queue(bytes);
    }
    void finish() {
        std::lock_guard const lock(mutex_);
        if (progress_ != progress::streaming) return;
        progress_ = progress::complete;
        queue(kind_.is_head || kind_.is_http_1_0 ? "" : "0\r\n\r\n");
    }
    void drop() {
        std::lock_guard const lock(mutex_);
        if (progress_ == progress::complete) return;
        progress_ = progress::dropped;
        queue("");
    }

    // For the server's thread: takes the bytes that are queued.
    progress take(std::string& bytes) {
        std::lock_guard const lock(mutex_);
        is_notified_ = false;
        bytes = std::exchange(queued_, {});
        return progress_;
    }
    void count_written(std::size_t bytes) {
        std::lock_guard const lock(mutex_);
        unread_ -= std::min(unread_, bytes);  // it is 0 once the client has gone
    }
    void lose() {
        std::lock_guard const lock(mutex_);
        gone_ = true;
        queued_ = {};
    }
    [[nodiscard]] bool is_gone() const { return gone_; }
    [[nodiscard]] bool says_close() const { return says_close_; }

private:
    void end_head(std::string& head) {
        says_close_ = !kind_.keeps_alive || server_->draining;
        head += says_close_ ? "Connection: close\r\n\r\n" : "\r\n";
    }
    void queue(std::string_view bytes) {
        if (!gone_) queued_ += bytes;
        unread_ = gone_ ? 0 : unread_ + bytes.size();
        // A session that waits for its client takes nothing, but must close when it has gone.
        if (!std::exchange(is_notified_, true) || gone_) notify_();
    }

    kind const kind_;
    std::size_t const unread_bytes_;
    std::function<void()> const notify_;
    std::shared_ptr<mailbox> const server_;
    mutable std::mutex mutex_;
    progress progress_ = progress::open;
    std::string queued_;
    std::size_t unread_ = 0;  // queued or with the session, and not yet with the kernel
    bool is_notified_ = false;
    std::atomic<bool> says_close_ = true;
    std::atomic<bool> gone_ = false;
};

class http_server::state::answer final : public http_answer {
public:
    explicit answer(std::shared_ptr<exchange> to) : to_(std::move(to)) {}
    answer(answer const&) = delete;
    answer& operator=(answer const&) = delete;
    ~answer() override { to_->drop(); }
    void send(int status, std::string content_type, std::string body, std::vector<header> more) override {
        to_->send(status, content_type, body, more);
    }
    void begin_stream(std::string content_type) override { to_->begin_stream(content_type); }
    void write(std::string chunk) override { to_->write(std::move(chunk)); }
    void finish() override { to_->finish(); }
    [[nodiscard]] bool gone() const override { return to_->is_gone(); }

private:
    std::shared_ptr<exchange> to_;
};

// A connection. It waits for bytes also while an answer is under way, so that it notices at once when the client
// disconnects.
class http_server::state::session : public std::enable_shared_from_this<session> {
public:
    session(state& server, tcp_socket socket, bool refused) :
        server_(server), socket_(std::move(socket)), reader_(server.limits_, server.hosts_), refused_(refused) {}

    void start() {
        socket_code code;
        close_on_exec(socket_.native_handle());
        socket_.non_blocking(true, code);
        socket_.set_option(asio::ip::tcp::no_delay(true), code);
        auto const held = std::min(server_.limits_.unread_bytes, kernel_bytes);
        socket_.set_option(asio::socket_base::send_buffer_size(static_cast<int>(held)), code);
        silent_since_ = http_clock::now();
        deadline_ = silent_since_ + server_.limits_.idle_time;
        if (refused_) fail(503, "expected fewer connections at the same time, found too many: try again later");
        watch();
    }
    void close() {
        if (phase_ == phase::closed) return;
        phase_ = phase::closed;
        if (exchange_ != nullptr) exchange_->lose();
        socket_code code;
        socket_.close(code);
        server_.remove(shared_from_this(), refused_);
    }
    [[nodiscard]] bool is_idle() const { return phase_ == phase::idle; }
    // Whether the server waits for its client, and since when: for the next request, or for the next bytes of one.
    [[nodiscard]] bool is_silent() const { return phase_ == phase::idle || phase_ == phase::receiving; }
    [[nodiscard]] http_clock::time_point silent_since() const { return silent_since_; }
    [[nodiscard]] bool is_expired(http_clock::time_point now) const { return now >= deadline_; }
    void expire() {
        if (phase_ != phase::receiving) return close();
        fail(408, sentence("expected a whole request within ", server_.limits_.request_time.count(),
                           " seconds, found a part of it"));
    }

private:
    enum class phase { idle, receiving, answering, lingering, closed };

    // How many bytes may be read now. While an answer is under way, these are the beginning of the next request.
    [[nodiscard]] std::size_t room() const {
        if (phase_ == phase::lingering) return read_bytes;
        auto const most = server_.limits_.header_bytes;
        return std::min(read_bytes, most - std::min(most, input_.size()));
    }
    void watch() {
        if (phase_ == phase::closed || is_watching_ || room() == 0) return;
        is_watching_ = true;
        socket_.async_wait(tcp_socket::wait_read, [self = shared_from_this()](socket_code code) {
            self->is_watching_ = false;
            self->receive_or_close(code);
        });
    }
    void receive_or_close(socket_code code) {
        if (phase_ == phase::closed) return;
        try {
            code ? close() : receive();
        } catch (std::bad_alloc const&) {
            close();
        }
    }
    void receive() {
        socket_code code;
        auto const bytes = socket_.read_some(asio::buffer(server_.received_.data(), room()), code);
        bool const is_early = code == asio::error::would_block || code == asio::error::interrupted;
        if (code && !is_early) return close();  // the client has gone
        if (bytes > 0) silent_since_ = http_clock::now();
        if (phase_ != phase::lingering) input_.append(server_.received_.data(), bytes);
        process();
        watch();
    }
    // Parses what has arrived, unless an answer is under way.
    void process() {
        if (phase_ != phase::idle && phase_ != phase::receiving) return;
        input_.erase(0, reader_.read(input_));
        if (phase_ == phase::idle && reader_.is_begun()) {
            phase_ = phase::receiving;
            deadline_ = http_clock::now() + server_.limits_.request_time;
        }
        if (auto const fault = reader_.fault()) return fail(fault->status, fault->message);
        if (reader_.is_complete()) return pass_on();
        if (reader_.awaits_continue() && !std::exchange(said_continue_, true)) {
            interim_ = "HTTP/1.1 100 Continue\r\n\r\n";
            pump();
        }
    }
    void begin_answer(bool keeps_alive) {
        phase_ = phase::answering;
        deadline_ = never;
        said_continue_ = false;
        // Called with the exchange's mutex held, so it must only post.
        auto notify = [server = server_.mailbox_, weak = weak_from_this()] {
            server->post([weak] {
                if (auto const self = weak.lock()) self->pump();
            });
        };
        exchange::kind const what{reader_.is_head(), reader_.is_http_1_0(), keeps_alive};
        exchange_ = std::make_shared<exchange>(what, server_.limits_.unread_bytes, std::move(notify), server_.mailbox_);
    }
    void pass_on() {
        begin_answer(reader_.keeps_alive());
        auto request = reader_.take();
        reader_.reset();
        socket_code gone;
        request.client = socket_.remote_endpoint(gone).address().to_string();
        server_.handler_(std::move(request), std::make_shared<answer>(exchange_));
    }
    // Answers a request that the handler does not get, and then closes.
    void fail(int status, std::string const& message) {
        begin_answer(false);
        exchange_->send(status, "application/json", http_error_body(status, message), {});
    }

    // Sends what is there to send.
    void pump() {
        if (phase_ == phase::closed) return;
        if (exchange_ != nullptr && exchange_->is_gone()) return close();  // its client reads too slowly
        if (is_writing_) return;
        auto progress = exchange::progress::open;
        sends_interim_ = !interim_.empty();
        if (sends_interim_)
            output_ = std::exchange(interim_, {});
        else if (exchange_ != nullptr)
            progress = exchange_->take(output_);
        if (!output_.empty()) return send();
        if (phase_ == phase::answering) deadline_ = never;
        if (progress == exchange::progress::dropped) close();
        if (progress == exchange::progress::complete) complete();
    }
    void send() {
        is_writing_ = true;
        if (phase_ == phase::answering) deadline_ = http_clock::now() + server_.limits_.write_time;
        socket_.async_write_some(asio::buffer(output_.data() + sent_, output_.size() - sent_),
                                 [self = shared_from_this()](socket_code code, std::size_t bytes) {
                                     self->is_writing_ = false;
                                     self->count_sent(code, bytes);
                                 });
    }
    void count_sent(socket_code code, std::size_t bytes) {
        if (phase_ == phase::closed) return;
        if (code) return close();
        if (!sends_interim_) exchange_->count_written(bytes);
        sent_ += bytes;
        if (sent_ < output_.size()) return send();
        output_ = {};
        sent_ = 0;
        pump();
    }
    void complete() {
        bool const closes = exchange_->says_close() || server_.mailbox_->draining;
        exchange_.reset();
        if (closes) return linger();
        phase_ = phase::idle;
        silent_since_ = http_clock::now();
        deadline_ = silent_since_ + server_.limits_.idle_time;
        process();
        watch();
    }
    // A close while bytes of the client are unread would reset the connection, and the answer could be lost. So the
    // client, which learns that nothing more will come, closes first.
    void linger() {
        phase_ = phase::lingering;
        deadline_ = http_clock::now() + linger_time;
        input_ = {};
        socket_code code;
        socket_.shutdown(tcp_socket::shutdown_send, code);
        if (code) return close();
        watch();
    }

    state& server_;
    tcp_socket socket_;
    http_reader reader_;
    std::shared_ptr<exchange> exchange_;  // from the end of a request to the end of its answer
    http_clock::time_point deadline_ = never, silent_since_;
    std::string input_;     // at most header_bytes: received, and not parsed yet
    std::string interim_;   // sent before the answer
    std::string output_;    // being sent
    std::size_t sent_ = 0;  // bytes of output_
    phase phase_ = phase::idle;
    bool const refused_;
    bool is_watching_ = false;
    bool is_writing_ = false;
    bool sends_interim_ = false;
    bool said_continue_ = false;
};

http_server::state::state(std::string const& address, std::uint16_t port, std::vector<std::string> hosts,
                          http_limits limits, http_handler handler) :
    limits_(limits),
    hosts_(std::move(hosts)), handler_(std::move(handler)) {
    listen_on(acceptor_, http_endpoint(address, port));
    port_ = acceptor_.local_endpoint().port();
    mailbox_ = std::make_shared<mailbox>(io_);
    accept();
}

http_server::state::~state() {
    mailbox_->close();
    close_all();
}

void http_server::state::run(std::function<void()> const& tick) {
    wait_for_tick(tick);
    for (;;) {
        try {
            io_.run();
            break;
        } catch (std::bad_alloc const&) {
            // The connection at work ends when its time is up; others continue.
        }
    }
    close_all();
}

void http_server::state::drain() {
    mailbox_->draining = true;
    mailbox_->post([this] {
        accept_again_ = never;
        socket_code code;
        acceptor_.close(code);
        close_idle();
    });
}

void http_server::state::accept() {
    accept_again_ = never;
    acceptor_.async_accept([this](socket_code code, tcp_socket socket) {
        if (mailbox_->draining) return;
        if (!code) welcome(std::move(socket));
        if (!code || code == asio::error::connection_aborted) return accept();
        if (code != asio::error::operation_aborted) accept_again_ = http_clock::now() + accept_pause;
    });
}

void http_server::state::welcome(tcp_socket socket) {
    if (open_ >= limits_.connections) close_longest_silent();
    bool const refused = open_ >= limits_.connections;
    if (refused && refused_ >= most_refused) return;  // closes it
    auto const one = std::make_shared<session>(*this, std::move(socket), refused);
    sessions_.insert(one);
    if (refused)
        ++refused_;
    else
        ++open_;
    one->start();
}

void http_server::state::remove(std::shared_ptr<session> const& one, bool refused) {
    sessions_.erase(one);
    if (refused)
        --refused_;
    else
        --open_;
}

void http_server::state::wait_for_tick(std::function<void()> const& tick) {
    timer_.expires_after(tick_interval);
    timer_.async_wait([this, &tick](socket_code code) {
        if (code) return;
        close_expired();
        if (http_clock::now() >= accept_again_) accept();
        if (tick) tick();
        wait_for_tick(tick);
    });
}

void http_server::state::close_expired() {
    auto const now = http_clock::now();
    std::vector<std::shared_ptr<session>> expired;
    std::ranges::copy_if(sessions_, std::back_inserter(expired), [&](auto const& one) { return one->is_expired(now); });
    for (auto const& one : expired) one->expire();
}

// Makes room for a new connection, if the server waits for the client of another one. So connections that are only
// held open, or send slowly, never block new clients.
void http_server::state::close_longest_silent() {
    std::shared_ptr<session> longest;
    for (auto const& one : sessions_)
        if (one->is_silent() && (longest == nullptr || one->silent_since() < longest->silent_since())) longest = one;
    if (longest != nullptr) longest->close();
}

void http_server::state::close_idle() {
    auto const all = sessions_;
    for (auto const& one : all)
        if (one->is_idle()) one->close();
}

void http_server::state::close_all() {
    socket_code code;
    acceptor_.close(code);
    auto const all = sessions_;
    for (auto const& one : all) one->close();
}

http_server::http_server(std::string const& address, std::uint16_t port, std::vector<std::string> hosts,
                         http_limits limits, http_handler handler) :
    state_(std::make_shared<state>(address, port, std::move(hosts), limits, std::move(handler))) {}

http_server::~http_server() {
    state_->stop();
}

std::uint16_t http_server::port() const {
    return state_->port();
}

std::size_t http_server::connections() const {
    return state_->connections();
}

void http_server::run(std::function<void()> const& tick) {
    auto const running = state_;  // the server may be destroyed by what runs
    running->run(tick);
}

void http_server::drain() {
    state_->drain();
}

void http_server::stop() {
    state_->stop();
}

}  // namespace calm::apps
