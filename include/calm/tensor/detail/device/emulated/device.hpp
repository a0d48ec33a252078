#pragma once
// An emulated device: memory that the host cannot touch, and a queue that runs as late as it may. Mistakes that a GPU
// shows only now and then (a host pointer in a kernel, a read before a wait, a write past an array) fail here at once.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/tensor/core/extents.hpp"
#include "calm/tensor/detail/core/graph_capture.hpp"
#include "calm/tensor/detail/core/memory.hpp"

namespace calm {

// Counts of the work of a device.
struct device_counts {
    index_t launches = 0;     // kernels launched
    index_t blocks = 0;       // blocks of those kernels
    index_t uploads = 0;      // copies from the host
    index_t bytes = 0;        // bytes copied from and to the host
    index_t waits = 0;        // waits of the host: copies to the host, fetch, wait
    index_t allocations = 0;  // of device memory
    index_t graphs = 0;       // graph launches
    bool operator==(device_counts const&) const = default;
    // The work between two counts.
    friend device_counts operator-(device_counts const& a, device_counts const& b) {
        return {a.launches - b.launches, a.blocks - b.blocks,           a.uploads - b.uploads, a.bytes - b.bytes,
                a.waits - b.waits,       a.allocations - b.allocations, a.graphs - b.graphs};
    }
};

namespace detail {

// The emulated device of a process. All contexts share its memory and its one queue; calls from several threads take
// turns.
class emulated_device {
public:
    static constexpr std::size_t red_zone = 64;         // bytes after every arena allocation
    static constexpr std::uint32_t red = 0x7FF5A5A5;    // their content: NaN in float and in double, no valid id
    static constexpr auto unwritten = std::byte{0xFF};  // fresh memory: NaN, -1

    // Never destroyed, as objects with static storage use it.
    static emulated_device& get() {
        static auto& only = *new emulated_device;
        return only;
    }

    // Zeroed memory that only kernels and copies can read; the pages before and after it are never readable. Null if
    // there is not enough.
    void* allocate(std::size_t bytes) {
        std::scoped_lock const lock(mutex_);
        require_no_graph("a memory allocation");
        close();
        ++counts_.allocations;
        std::size_t const page = page_size();
        bytes = (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
        std::size_t const inside = (std::max(bytes, std::size_t{1}) + page - 1) / page * page;
        void* const whole =
            mmap(nullptr, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (whole == MAP_FAILED) return nullptr;
        auto* const first = static_cast<std::byte*>(whole) + page;
        std::byte* const p = first + (inside - bytes);  // ends where a page ends
        blocks_[p] = {first, inside, bytes};
        return p;
    }

    // Waits, as cudaFree does; the next wait throws what fails here.
    void release(void* p) noexcept {
        std::scoped_lock const lock(mutex_);
        close();
        try {
            require_no_graph("a memory release");
            run();
        } catch (...) {
            failed_ = std::current_exception();
        }
        auto const found = blocks_.find(static_cast<std::byte*>(p));
        std::size_t const page = page_size();
        munmap(found->second.first - page, found->second.inside + 2 * page);
        blocks_.erase(found);
    }

    // Queues a task, which runs in order when the host waits.
    void later(std::function<void()> task) {
        std::scoped_lock const lock(mutex_);
        close();
        queue_.push_back(std::move(task));
    }
    // Queues a kernel, or records it. On each replay `number` must be as recorded.
    void launch(char const* name, index_t blocks, std::uint64_t number, std::function<void()> kernel) {
        std::scoped_lock const lock(mutex_);
        if (graph_ != nullptr) {
            graph_->capture.check(name, blocks, number);
            return record([task = std::move(kernel)](std::byte const*) { task(); });
        }
        ++counts_.launches;
        counts_.blocks += blocks;
        later(std::move(kernel));
    }
    void count_dry_launch() {
        std::scoped_lock const lock(mutex_);
        ++dry_launches_;
    }
    // Copies src to dst on the device; src may change after it returns.
    void upload(void* dst, void const* src, std::size_t bytes) {
        require_on_device(dst, bytes, "copied to");
        auto const* const from = static_cast<std::byte const*>(src);
        std::scoped_lock const lock(mutex_);
        if (graph_ != nullptr) {
            auto const at = graph_->capture.check_copy(dst, bytes);
            std::copy_n(from, bytes, graph_->bytes.data() + at);
            return record([=](std::byte const* room) { std::copy_n(room + at, bytes, static_cast<std::byte*>(dst)); });
        }
        ++counts_.uploads;
        counts_.bytes += static_cast<index_t>(bytes);
        later([dst, staged = std::vector<std::byte>(from, from + bytes)] {
            std::copy(staged.begin(), staged.end(), static_cast<std::byte*>(dst));
        });
    }
    // Copies src on the device to dst on the host, after all earlier work.
    void download(void* dst, void const* src, std::size_t bytes) {
        require_on_device(src, bytes, "copied from");
        std::scoped_lock const lock(mutex_);
        require_no_graph("a copy to the host");
        counts_.bytes += static_cast<index_t>(bytes);
        later([=] {
            if (bytes > 0) std::memcpy(dst, src, bytes);
        });
        wait();
    }
    void fill(void* p, std::byte value, std::size_t bytes) {
        later_or_recorded(p, bytes, [=] { std::fill_n(static_cast<std::byte*>(p), bytes, value); });
    }

    // Recorded work, and the bytes of its copies.
    struct graph {
        explicit graph(std::size_t room) : capture(room), bytes(room) {}
        graph_capture capture;
        std::vector<std::byte> bytes;
        std::vector<std::function<void(std::byte const*)>> tasks;  // each takes a copy of `bytes`
    };
    // Between these two calls work is recorded, or compared and its copies updated, and nothing runs. As during a GPU's
    // capture, no memory may be allocated or released, and the host may not copy, wait or open the memory. Each throws
    // errc::device, a release only in end_graph. Other threads wait meanwhile.
    void begin_graph(graph& of) {
        std::unique_lock lock(mutex_);
        require_no_graph("another graph");
        graph_ = &of;
        capture_ = std::move(lock);
    }
    void end_graph() {
        auto const lock = std::exchange(capture_, {});
        auto& made = *std::exchange(graph_, nullptr);
        if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
        made.capture.end();
    }
    // Ends a recording or replay that failed.
    void forget_graph() noexcept {
        auto const lock = std::exchange(capture_, {});
        if (auto* const of = std::exchange(graph_, nullptr)) of->capture.give_up();
    }
    // Queues the graph, which lives until it has run.
    void launch(std::shared_ptr<graph const> const& made) {
        std::scoped_lock const lock(mutex_);
        require_no_graph("another graph");
        ++counts_.graphs;
        counts_.bytes += static_cast<index_t>(made->bytes.size());
        later([made, bytes = made->bytes] {
            for (auto const& task : made->tasks) task(bytes.data());
        });
    }

    // Runs all queued work. Throws errc::device if some of it wrote where it must not.
    void wait() {
        std::scoped_lock const lock(mutex_);
        require_no_graph("a wait by the host");
        close();
        ++counts_.waits;
        run_and_count();
    }

    // For tests and debuggers: runs all queued work, as a wait that is not counted. The host may then read and write
    // the memory in place, until `close` or any further work.
    void open() {
        std::scoped_lock const lock(mutex_);
        if (open_) return;
        require_no_graph("host access to device memory");
        run_and_count();
        protect(PROT_READ | PROT_WRITE);
        open_ = true;
    }
    void close() {
        std::scoped_lock const lock(mutex_);
        if (!open_) return;
        protect(PROT_NONE);
        open_ = false;
    }

    // Begins an arena allocation and the red zone after it; at the end the zone must be unchanged. Reading the zone
    // gives NaN.
    void begin_piece(std::byte* p, std::size_t bytes) {
        fill(p, unwritten, bytes);
        later_or_recorded(p + bytes, red_zone, [=] {
            auto const zone = red_words();
            std::memcpy(p + bytes, zone.data(), red_zone);
        });
    }
    void end_piece(std::byte const* p, std::size_t bytes, std::string arena) {
        std::scoped_lock const lock(mutex_);
        auto const look = [=, arena = std::move(arena)] {
            require(std::memcmp(p + bytes, red_words().data(), red_zone) == 0, errc::device,
                    "calm::emulated: a kernel wrote past the end of ", bytes, " bytes of the arena '", arena,
                    "'; expected it to write within its allocation");
        };
        if (graph_ == nullptr)
            later(look);
        else  // not compared, as an exception ends allocations too
            record([look](std::byte const*) { look(); });
    }

    // Whether all of these bytes belong to the device.
    [[nodiscard]] bool owns(void const* p, std::size_t bytes) const {
        auto const* const at = static_cast<std::byte const*>(p);
        std::scoped_lock const lock(mutex_);
        auto const after = blocks_.upper_bound(at);
        if (after == blocks_.begin()) return false;
        auto const& [begin, block] = *std::prev(after);
        return at >= begin && bytes <= block.bytes && at <= begin + (block.bytes - bytes);
    }

    // Requires every address in the bytes of a kernel to be the device's. Words that are too small or too large for an
    // address, or point to unmapped memory, count as numbers. Returns a hash of the addresses (FNV-1a).
    std::uint64_t sum_of_addresses(void const* kernel, std::size_t bytes, char const* name) const {
        std::uint64_t sum = 0xcbf29ce484222325U;
        for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= bytes; at += sizeof(std::uintptr_t)) {
            std::byte* address = nullptr;
            std::memcpy(&address, static_cast<std::byte const*>(kernel) + at, sizeof address);
            auto const word = reinterpret_cast<std::uintptr_t>(address);
            if (word >> 32 == 0 || word >> 48 != 0) continue;
            if (is_the_devices(address)) {
                sum = (sum ^ word) * 0x100000001b3U;
                continue;
            }
            require(!is_mapped(address), errc::device,
                    "calm::emulated: expected a kernel with only device addresses, found a host address in ", name,
                    "; copy the data to the device first: copy(ctx, there, here)");
        }
        return sum;
    }

    [[nodiscard]] device_counts counts() const {
        std::scoped_lock const lock(mutex_);
        return counts_;
    }
    [[nodiscard]] index_t dry_launches() const {
        std::scoped_lock const lock(mutex_);
        return dry_launches_;
    }

private:
    struct memory_block {
        std::byte* first = nullptr;  // first page
        std::size_t inside = 0;      // bytes of the pages
        std::size_t bytes = 0;       // bytes requested
    };

    static std::array<std::uint32_t, red_zone / sizeof red> red_words() {
        std::array<std::uint32_t, red_zone / sizeof red> zone{};
        zone.fill(red);
        return zone;
    }
    static std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
    static bool is_mapped(std::byte* address) {
        return msync(address - reinterpret_cast<std::uintptr_t>(address) % page_size(), 1, MS_ASYNC) == 0;
    }
    // In a block, or in the unreadable pages before and after it.
    [[nodiscard]] bool is_the_devices(std::byte const* address) const {
        auto const word = reinterpret_cast<std::uintptr_t>(address);
        std::scoped_lock const lock(mutex_);
        auto const is_in = [&](memory_block const& b) {
            auto const first = reinterpret_cast<std::uintptr_t>(b.first);
            return word >= first - page_size() && word <= first + b.inside + page_size();
        };
        auto const after = blocks_.upper_bound(address);
        return (after != blocks_.end() && is_in(after->second)) ||
               (after != blocks_.begin() && is_in(std::prev(after)->second));
    }
    void require_on_device(void const* p, std::size_t bytes, char const* what) const {
        require(bytes == 0 || owns(p, bytes), errc::device, "calm::emulated: expected ", bytes,
                " bytes of device memory to be ", what, ", found other memory");
    }

    void require_no_graph(char const* found) const {
        require(graph_ == nullptr, errc::device,
                "calm::emulated: expected only kernels, fills and copies from the host during graph capture, found ",
                found, "; do it before or after the captured work");
    }
    // Queues or records a fill of p, or a task like it.
    void later_or_recorded(void const* p, std::size_t bytes, std::function<void()> task) {
        std::scoped_lock const lock(mutex_);
        if (graph_ == nullptr) return later(std::move(task));
        graph_->capture.check_fill(p, bytes);
        record([again = std::move(task)](std::byte const*) { again(); });
    }
    void record(std::function<void(std::byte const*)> task) {
        if (graph_->capture.is_new()) graph_->tasks.push_back(std::move(task));
    }
    void protect(int access) {
        for (auto const& [p, b] : blocks_) mprotect(b.first, b.inside, access);
    }
    void run() {
        if (queue_.empty()) return;
        auto const tasks = std::exchange(queue_, {});
        protect(PROT_READ | PROT_WRITE);
        try {
            for (auto const& task : tasks) task();
        } catch (...) {
            protect(PROT_NONE);
            throw;
        }
        protect(PROT_NONE);
    }
    void run_and_count() {
        run();
        if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
    }

    mutable std::recursive_mutex mutex_;
    std::map<std::byte*, memory_block, std::less<>> blocks_;
    std::vector<std::function<void()>> queue_;
    graph* graph_ = nullptr;                          // while one is recorded or compared
    std::unique_lock<std::recursive_mutex> capture_;  // held meanwhile
    std::exception_ptr failed_;
    bool open_ = false;  // to the host; then the queue is empty
    device_counts counts_;
    index_t dry_launches_ = 0;
};

template <> struct memory_of<emulated> {
    // Null if there is not enough memory.
    static void* allocate(std::size_t bytes) { return emulated_device::get().allocate(bytes); }
    static void release(void* p) noexcept { emulated_device::get().release(p); }
    static void clear(void* p, std::size_t bytes) { emulated_device::get().fill(p, std::byte{}, bytes); }
    static void put(void* dst, void const* src, std::size_t bytes) { emulated_device::get().upload(dst, src, bytes); }

    // What an arena calls around its allocations.
    static constexpr std::size_t red_zone = emulated_device::red_zone;
    static void begin_piece(std::byte* p, std::size_t bytes) { emulated_device::get().begin_piece(p, bytes); }
    static void end_piece(std::byte const* p, std::size_t bytes, std::string_view arena) {
        emulated_device::get().end_piece(p, bytes, std::string(arena));
    }
};

}  // namespace detail

}  // namespace calm
