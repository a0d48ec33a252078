#pragma once
/// \file
/// A context says where and how operations run: threads, workspace, the key of random numbers. There are no globals.
/// Not thread-safe: one call at a time. On the CPU several threads may compute with one constant model, each with its
/// own context.
/// \shows{tests/tensor/context_test.cpp,keys_hold_the_seed_the_stream_and_the_step}

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>

#ifdef __FAST_MATH__
#error "calm: -ffast-math breaks exp and the finite checks silently; compile without it"
#endif

#include "calm/base/random.hpp"
#include "calm/tensor/core/arena.hpp"
#include "calm/tensor/core/int8_weights.hpp"
#include "calm/tensor/core/rng_counter.hpp"
#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/detail/core/graph_capture.hpp"
#include "calm/tensor/detail/core/thread_pool.hpp"

namespace calm {

template <class Backend> class bf16_copies;

namespace detail {

// Members that the context of every backend has.
template <class Backend> class context_base {
public:
    using backend = Backend;

    std::uint64_t seed;  // of every random key
    // Number of the training step, part of every random key. train_autoencoder, train_calm and train_autoregressive set
    // it. A training loop of your own must set it too, or every step draws the same noise.
    std::uint32_t step = 0;
    index_t micro_batch = 0;  // index in the step, which has micro-batches of equal size
    // What forward, extend and prepare return, including what backward needs. It stays until the caller rewinds the
    // arena, usually with an arena_scope around each step.
    arena<Backend> saved{"saved activations"};
    // Temporaries. A function releases what it takes here, except a result that it returns here (new_total).
    arena<Backend> workspace{"workspace"};
    arena<> staging{"staging"};                    // host data on its way to a device
    bf16_copies<Backend> const* copies = nullptr;  // of factors of bf16 products, or null
    // Hook: backward calls it after a linear layer has added to its gradients. Contributions to all gradients requested
    // earlier are in place by then. May be empty.
    std::function<void()> after_gradients;

    // The key of this step's random numbers of that stream, for fill_normal and the like.
    [[nodiscard]] key random(stream s) const { return {seed, s, step}; }
    // The RNG counter at which this micro-batch starts, given the number of draws per micro-batch.
    [[nodiscard]] rng_counter micro_batch_counter(index_t draws_per_micro_batch) const {
        return {draws_per_micro_batch, micro_batch};
    }

    // In a dry run every operation checks shapes and takes memory but computes nothing, so memory needs are known
    // before the first real step.
    [[nodiscard]] bool is_dry_run() const { return dry_run_; }
    void set_dry_run(bool on) {  // begins or ends a dry run
        dry_run_ = on;
        saved.watch(!on);
        workspace.watch(!on);
    }

protected:
    explicit context_base(std::uint64_t run_seed) : seed(run_seed) {}

private:
    bool dry_run_ = false;
};

}  // namespace detail

namespace detail {

// *there = value
struct put_number_kernel {
    static constexpr int threads = 32;
    struct shared {};
    std::uint32_t* there;
    std::uint32_t value;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t) const {
        b.phase([&](int t) {
            if (t == 0) *there = value;
        });
    }
};

// Members that device contexts have in addition; `Context` is the derived class.
template <class Backend, class Context> class device_context_base : public context_base<Backend> {
public:
    bool products_in_bf16 = false;  // of float; multiply_in_bf16 sets it

    // The key of this step's random numbers of that stream, for fill_normal and the like. Kernels read the step from
    // device memory, so a replayed kernel draws for the step in which it runs.
    [[nodiscard]] key random(stream s) const {
        sync_step();
        return {this->seed, s, this->step, live_->data()};
    }
    // For kernels: they read the micro-batch from device memory, so a replayed kernel draws for the one in which it
    // runs. Takes the number of draws per micro-batch.
    [[nodiscard]] rng_counter micro_batch_counter(index_t draws_per_micro_batch) const {
        sync_step();
        return {draws_per_micro_batch, this->micro_batch, live_->data() + 1};
    }
    // Updates the step and micro-batch in device memory if they have changed; `random` and `micro_batch_counter` call
    // it. A new step is copied, a new micro-batch is set by a kernel. The first call takes the memory, also in a dry
    // run.
    void sync_step() const {
        if (!live_) live_.emplace();
        numbers const now{this->step, static_cast<std::uint32_t>(this->micro_batch)};
        if (this->is_dry_run() || brought_ == now) return;
        auto const& self = static_cast<Context const&>(*this);
        if (brought_[0] != now[0])
            self.upload(live_->data(), now.data(), sizeof now);
        else
            launch(self, 1, put_number_kernel{live_->data() + 1, now[1]});
        brought_ = now;
    }
    // Before a replay: updates them only if a kernel can read them.
    void sync_step_again() const {
        if (live_) sync_step();
    }
    // Bytes uploaded so far, each copy rounded up to graph_capture::line: the buffer size that a captured graph needs.
    [[nodiscard]] std::size_t uploaded() const { return uploaded_; }

protected:
    using context_base<Backend>::context_base;

    void count_upload(std::size_t bytes) const { uploaded_ += graph_capture::lines_of(bytes); }

private:
    using numbers = std::array<std::uint32_t, 2>;  // step, micro-batch

    mutable std::optional<tensor<std::uint32_t, extents<2>, Backend>> live_;
    mutable numbers brought_{};  // the values in live_
    mutable std::size_t uploaded_ = 0;
};

}  // namespace detail

/// The order in which the host runs the blocks of a kernel and the threads of a block. If results differ between
/// orders, a barrier is missing or blocks depend on each other.
enum class thread_order { ascending, descending, permuted };

template <class Backend = cpu> class context;

namespace detail {

template <class T, class W, class V> struct product;

// A way to multiply float matrices other than in fp32 (bf16_products.hpp), and a benchmark of its peak rate.
struct float_products {
    void (*multiply)(context<cpu>& ctx, product<float, float, float> const& p);
    float (*round)();  // multiply-adds on registers; use the result, or the compiler removes them
    double flops;      // per call of `round`
};

}  // namespace detail

/// The context of the host backends `cpu` and `blocks`. For devices see device/emulated/context.hpp and
/// device/cuda/context.hpp.
template <class Backend> class context : public detail::context_base<Backend> {
    static_assert(host_memory<Backend>, "calm::context: this backend has another context: include its header");

public:
    /// threads: 0 means one per hardware thread; give 1 if your program has threads of its own. The calling thread is
    /// one of them, the others start with the first call that needs them. A seed gives the same bits for any number of
    /// threads.
    explicit context(std::uint64_t run_seed = 0, int threads = 0) :
        detail::context_base<Backend>(run_seed), threads_(threads > 0 ? threads : detail::threads_of_the_machine()) {}

    thread_order order = thread_order::ascending;      ///< of `blocks`
    detail::float_products const* products = nullptr;  ///< of `cpu`; null: in fp32
    /// Of `cpu`: products with weights (n, k) sum every row in one order, so the bits of a row do not depend on the
    /// number of rows. Products of more than about 32 rows are then up to a third slower.
    bool independent_rows = false;
    int8_weights* int8 = nullptr;  ///< of `cpu`: matrices held in int8, or null; use_int8_weights sets it
    /// How `matmul` multiplies by them; use_int8_weights sets it.
    void (*multiply_int8)(context<cpu>&, detail::product<float, float, float> const&,
                          detail::int8_matrix const&) = nullptr;

    [[nodiscard]] int threads() const { return threads_; }  ///< at least 1
    void wait() const {}                                    ///< nothing to wait for: operations have finished

    /// Calls f(task) or f(task, thread) once for each task 0 .. tasks - 1, in any order; 0 <= thread < threads(). Tasks
    /// must be independent and must not throw.
    template <class F> void parallel(index_t tasks, F const& f) const {
        if (this->is_dry_run() || tasks <= 0) return;
        run_tasks(
            tasks,
            [](void const* g, index_t task, [[maybe_unused]] int thread) {
                if constexpr (std::is_invocable_v<F const&, index_t, int>)
                    (*static_cast<F const*>(g))(task, thread);
                else
                    (*static_cast<F const*>(g))(task);
            },
            std::addressof(f));
    }

    /// Calls f(begin, end) or f(begin, end, thread) for ranges of n items, `grain` items per task. The ranges do not
    /// depend on the number of threads.
    template <class F> void parallel_ranges(index_t n, index_t grain, F const& f) const {
        parallel((n + grain - 1) / grain, [&](index_t task, int thread) {
            if constexpr (std::is_invocable_v<F const&, index_t, index_t, int>)
                f(task * grain, std::min(n, (task + 1) * grain), thread);
            else
                f(task * grain, std::min(n, (task + 1) * grain));
        });
    }

    /// The most threads that can work on this many tasks.
    [[nodiscard]] index_t threads_for(index_t tasks) const { return std::min<index_t>(threads_, tasks); }

private:
    int threads_;
    mutable std::unique_ptr<detail::thread_pool> pool_;  // made at first use

    // Not a template, so it is compiled once; through `f`, each kind of task is compiled once for both branches.
    void run_tasks(index_t tasks, detail::task_function f, void const* data) const {
        if (threads_for(tasks) > 1 && !detail::inside_parallel_region) {
            if (!pool_) pool_ = std::make_unique<detail::thread_pool>(threads_);
            pool_->run(tasks, f, data);
            return;
        }
        detail::flush_denormals const guard;
        for (index_t task = 0; task < tasks; ++task) f(data, task, 0);
    }
};

namespace detail {

// The matrix in int8 that a table belongs to, or null.
template <class W> int8_matrix const* in_int8(context<cpu> const& ctx, W const* table) {
    if constexpr (std::is_same_v<W, float>)
        return ctx.int8 != nullptr ? ctx.int8->find(table) : nullptr;
    else
        return nullptr;
}
// Copies a row of `width` from a table that belongs to `held` if that is not null.
template <class T, class W> void copy_row(int8_matrix const* held, W const* row, index_t width, T* to) {
    if constexpr (std::is_same_v<T, float> && std::is_same_v<W, float>)
        if (held != nullptr) return held->read_row((row - held->begin) / held->k, to);
    std::copy_n(row, width, to);
}

}  // namespace detail

/// From now on `matmul` of float with this context rounds both factors to bf16 (nearest, ties to even) and accumulates
/// in fp32. The error of an element is at most 2^-7 of its sum of |a b|, plus fp32 rounding. Results keep their storage
/// type. Products of at most 64 rows, and those inside the attention block kernels, stay fp32. For the cpu see
/// bf16_products.hpp.
template <device_memory Backend> void multiply_in_bf16(context<Backend>& ctx) {
    ctx.products_in_bf16 = true;
}

}  // namespace calm
