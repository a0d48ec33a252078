#pragma once
// The thread pool of a context.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "calm/base/error.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm::detail {

// Makes a computing thread flush denormals to zero while it lives: a saturated softmax is otherwise 14 times slower.
class flush_denormals {
#if defined(__SSE__)
public:
    flush_denormals() : saved_(_mm_getcsr()) {
        _mm_setcsr(saved_ | 0x8040U);
    }
    ~flush_denormals() {
        _mm_setcsr(saved_);
    }
    flush_denormals(flush_denormals const&) = delete;
    flush_denormals& operator=(flush_denormals const&) = delete;

private:
    unsigned saved_;
#endif
};

// Number of threads that this process may run at once.
inline int threads_of_the_machine() {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Whether this thread is running a task: parallel work inside it runs on this thread alone.
inline thread_local bool inside_parallel_region = false;

// Spins until done(), at most fifty microseconds, after which other threads may have the processor. Returns done().
template <class Done> bool spin_until(Done const& done) {
    using clock = std::chrono::steady_clock;
    for (auto const end = clock::now() + std::chrono::microseconds(50); clock::now() < end;)
        for (int i = 0; i < 16; ++i) {
            if (done()) return true;
#if defined(__SSE__)
            _mm_pause();
#endif
        }
    return done();
}

// A task of a job: f(data, task, thread).
using task_function = void (*)(void const* data, index_t task, int thread);

// A work-stealing thread pool; the calling thread takes part. Neighbouring tasks go to the same thread in every job, so
// that it finds their data in its cache. An idle thread steals tasks, so a thread that the OS has not scheduled delays
// no job, and a preempted one delays only the task that it is running. Workers yield between tasks before their time
// slice ends, so that the OS need not preempt them within one.
class thread_pool {
public:
    // threads: including the caller. Throws errc::usage if the system does not give so many.
    explicit thread_pool(int threads) : ranges_(static_cast<std::size_t>(threads)) {
        workers_.reserve(ranges_.size() - 1);
        try {
            for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
        } catch (std::system_error const& reason) {
            stop();
            throw error(errc::usage, sentence("calm: expected ", threads, " threads, but the system gives ",
                                              workers_.size() + 1, " (", reason.what(), "); ask for fewer"));
        }
    }
    ~thread_pool() { stop(); }
    thread_pool(thread_pool const&) = delete;
    thread_pool& operator=(thread_pool const&) = delete;

    // Runs f for every task, and returns when all are done.
    void run(index_t tasks, task_function f, void const* data) {
        flush_denormals const guard;
        members_ = static_cast<int>(std::min<index_t>(static_cast<index_t>(ranges_.size()), tasks));
        f_ = f;
        data_ = data;
        for (index_t i = 0; i < members_; ++i) {
            auto& mine = ranges_[static_cast<std::size_t>(i)];
            mine.next.store(i * tasks / members_, std::memory_order_relaxed);
            mine.end = (i + 1) * tasks / members_;
        }
        state_.fetch_add(a_job | is_open, std::memory_order_release);
        state_.notify_all();
        do_tasks(0, [] { return false; });
        state_.fetch_sub(is_open, std::memory_order_relaxed);
        wait_for_the_others();
    }

private:
    void stop() {
        stopping_ = true;
        state_.fetch_add(a_job, std::memory_order_release);
        state_.notify_all();
        for (auto& worker : workers_) worker.join();
    }

    using clock = std::chrono::steady_clock;
    // A worker yields after this time, which is less than an OS allows it while others wait.
    static constexpr std::chrono::milliseconds time_slice{1};

    // Tasks next .. end - 1, meant for one thread; others may steal them.
    struct alignas(64) task_range {
        std::atomic<index_t> next{0};
        index_t end = 0;
    };

    // state_: the number of the job, whether workers may still join it, and how many are working on it.
    static constexpr std::uint32_t is_open = 1U << 12;
    static constexpr std::uint32_t a_job = 1U << 13;
    static constexpr std::uint32_t workers_at_it = is_open - 1;

    std::vector<task_range> ranges_;
    int members_ = 0;  // threads of the job
    task_function f_ = nullptr;
    void const* data_ = nullptr;
    std::atomic<bool> stopping_ = false;
    alignas(64) std::atomic<std::uint32_t> state_ = 0;
    std::vector<std::thread> workers_;

    static std::uint32_t job_of(std::uint32_t state) { return state / a_job; }

    // Runs tasks until none is left, or until enough() holds between two of them. Returns whether none is left.
    template <class Enough> bool do_tasks(int thread, Enough const& enough) {
        inside_parallel_region = true;
        bool stops = false;
        for (int i = 0; i < members_ && !stops; ++i) {
            auto& from = ranges_[static_cast<std::size_t>((thread + i) % members_)];
            index_t task = 0;
            while (!(stops = enough()) && (task = from.next.fetch_add(1, std::memory_order_relaxed)) < from.end)
                f_(data_, task, thread);
        }
        inside_parallel_region = false;
        return !stops;
    }

    void wait_for_the_others() {
        auto const alone = [this] { return (state_.load(std::memory_order_acquire) & workers_at_it) == 0; };
        while (!spin_until(alone)) {
            auto const now = state_.load(std::memory_order_acquire);
            if ((now & workers_at_it) != 0) state_.wait(now, std::memory_order_acquire);
        }
    }

    void work(int thread) {
        flush_denormals const guard;
        std::uint32_t seen = 0;  // the last job that this thread has dealt with
        auto since = clock::now();
        auto const time_slice_is_over = [&since] { return clock::now() - since > time_slice; };
        for (;;) {
            if (time_slice_is_over()) {
                std::this_thread::yield();
                since = clock::now();
            }
            auto now = state_.load(std::memory_order_acquire);
            if (job_of(now) == seen) {
                if (!spin_until([&] { return job_of(state_.load(std::memory_order_relaxed)) != seen; })) {
                    state_.wait(now, std::memory_order_relaxed);
                    since = clock::now();
                }
                continue;
            }
            if (stopping_) return;
            if ((now & is_open) == 0) {
                seen = job_of(now);
            } else if (state_.compare_exchange_weak(now, now + 1, std::memory_order_acquire)) {
                if (thread >= members_ || do_tasks(thread, time_slice_is_over)) seen = job_of(now);
                if ((state_.fetch_sub(1, std::memory_order_release) & (is_open | workers_at_it)) == 1)
                    state_.notify_all();
            }
        }
    }
};

}  // namespace calm::detail
