#pragma once
// A context says where and how a verb runs: threads, scratch memory, the key of its random numbers. There are no
// globals.

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
#include "calm/tensor/arena.hpp"
#include "calm/tensor/draw_number.hpp"
#include "calm/tensor/recording.hpp"
#include "calm/tensor/team.hpp"
#include "calm/tensor/tensor.hpp"

namespace calm {

template <class Backend> class bf16_copies;

namespace detail {

// What the context of every executor has.
template <class Backend> class context_base {
public:
    using backend = Backend;

    std::uint64_t seed;                            // of every random key
    std::uint32_t step = 0;                        // of the run: part of every random key
    index_t micro_batch = 0;                       // of the step, whose micro-batches are equal parts of it
    arena<Backend> saved{"saved activations"};     // what backward needs of forward
    arena<Backend> scratch{"scratch"};             // what a verb or layer needs while it runs
    arena<> staging{"staging"};                    // of the host: what is on its way to a device
    bf16_copies<Backend> const* copies = nullptr;  // of factors of products in bf16, or null
    // Called in backward when a product has added to its gradients, as all that were asked for before it have been
    // added to. Empty where nobody wants to know.
    std::function<void()> after_gradients;

    [[nodiscard]] key random(stream s) const { return {seed, s, step}; }  // of this step
    // Where draws begin of which each micro-batch of a step has so many.
    [[nodiscard]] draw_number number_in_step(index_t a_micro_batch) const { return {a_micro_batch, micro_batch}; }

    // In a rehearsal every verb checks its shapes and takes its memory, and nothing is computed: so a step's memory is
    // known before it runs.
    [[nodiscard]] bool rehearsing() const { return rehearsing_; }
    void rehearse(bool on) {  // begins or ends a rehearsal
        rehearsing_ = on;
        saved.watch(!on);
        scratch.watch(!on);
    }

protected:
    explicit context_base(std::uint64_t run_seed) : seed(run_seed) {}

private:
    bool rehearsing_ = false;
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

// What the contexts of devices have besides: `Context` is such a one.
template <class Backend, class Context> class device_context_base : public context_base<Backend> {
public:
    bool products_in_bf16 = false;  // of float: multiply_in_bf16 (bf16_products.hpp)

    // Of this step, for kernels: they read its number in the device's memory, and so draw what belongs to the step in
    // which they run.
    [[nodiscard]] key random(stream s) const {
        bring_step();
        return {this->seed, s, this->step, live_->data()};
    }
    // Where draws begin of which each micro-batch of a step has so many, for kernels: those of the micro-batch in which
    // they run.
    [[nodiscard]] draw_number number_in_step(index_t a_micro_batch) const {
        bring_step();
        return {a_micro_batch, this->micro_batch, live_->data() + 1};
    }
    // Kernels that are run again after it draw as in this step and micro-batch. `random` and `number_in_step` do it
    // where those have changed: a step is brought in a copy, a micro-batch of it by a kernel. The first time takes the
    // memory, also in a rehearsal.
    void bring_step() const {
        if (!live_) live_.emplace();
        numbers const now{this->step, static_cast<std::uint32_t>(this->micro_batch)};
        if (this->rehearsing() || brought_ == now) return;
        auto const& self = static_cast<Context const&>(*this);
        if (brought_[0] != now[0])
            self.upload(live_->data(), now.data(), sizeof now);
        else
            launch(self, 1, put_number_kernel{live_->data() + 1, now[1]});
        brought_ = now;
    }
    // The same for kernels that are asked for again: unless nothing was brought so far, and so none reads it.
    void bring_step_again() const {
        if (live_) bring_step();
    }
    // Bytes that were uploaded so far, each copy in whole lines: what a recording needs of room.
    [[nodiscard]] std::size_t uploaded() const { return uploaded_; }

protected:
    using context_base<Backend>::context_base;

    void count_upload(std::size_t bytes) const { uploaded_ += recording::lines_of(bytes); }

private:
    using numbers = std::array<std::uint32_t, 2>;  // of the step and of its micro-batch

    mutable std::optional<tensor<std::uint32_t, extents<2>, Backend>> live_;
    mutable numbers brought_{};  // what stands there
    mutable std::size_t uploaded_ = 0;
};

}  // namespace detail

// In which order the host runs the blocks of a kernel, and the threads of a block. Equal bits in all of them, or a
// barrier is missing, or blocks depend on each other.
enum class thread_order { ascending, descending, permuted };

template <class Backend = cpu> class context;

namespace detail {

template <class T, class W, class V> struct product;

// Another way to multiply matrices of float than by fp32 (bf16_products.hpp), and what a thread adds up at most by it.
struct float_products {
    void (*multiply)(context<cpu>& ctx, product<float, float, float> const& p);
    float (*round)();  // multiply-adds on registers; somebody has to use what they come to
    double flops;      // of a round
};

}  // namespace detail

// Runs on the host, `cpu` or `blocks`; a device's context is in emulated/context.hpp and cuda/context.hpp.
template <class Backend> class context : public detail::context_base<Backend> {
    static_assert(host_memory<Backend>, "calm::context: this backend has a context of its own");

public:
    // threads: 0 takes the machine's. The same seed gives the same bits at any number of threads.
    explicit context(std::uint64_t run_seed = 0, int threads = 0) :
        detail::context_base<Backend>(run_seed), threads_(threads > 0 ? threads : detail::threads_of_the_machine()) {}

    thread_order order = thread_order::ascending;      // of `blocks`
    detail::float_products const* products = nullptr;  // of `cpu`; null: by fp32

    [[nodiscard]] int threads() const { return threads_; }  // at least 1
    void wait() const {}                                    // everything is done when it returns

    // Calls f(task) or f(task, thread) for task = 0 .. tasks - 1, each once, in any order, on threads 0 .. threads() -
    // 1 or fewer. Tasks must not depend on each other, and must not throw.
    template <class F> void parallel(index_t tasks, F const& f) const {
        if (this->rehearsing() || tasks <= 0) return;
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

    // The same over ranges [begin, end) of n items, `grain` items a task, as f(begin, end) or f(begin, end, thread):
    // the ranges don't depend on the threads.
    template <class F> void parallel_ranges(index_t n, index_t grain, F const& f) const {
        parallel((n + grain - 1) / grain, [&](index_t task, int thread) {
            if constexpr (std::is_invocable_v<F const&, index_t, index_t, int>)
                f(task * grain, std::min(n, (task + 1) * grain), thread);
            else
                f(task * grain, std::min(n, (task + 1) * grain));
        });
    }

    // How many threads so many tasks have at most.
    [[nodiscard]] index_t threads_for(index_t tasks) const { return std::min<index_t>(threads_, tasks); }

private:
    int threads_;
    mutable std::unique_ptr<detail::team> team_;  // made where it is first asked

    // Compiled once, whatever the tasks do, and what they do is compiled once too.
    void run_tasks(index_t tasks, detail::task_function f, void const* data) const {
        if (threads_for(tasks) > 1 && !detail::at_a_task) {
            if (!team_) team_ = std::make_unique<detail::team>(threads_);
            team_->run(tasks, f, data);
            return;
        }
        detail::flush_denormals const guard;
        for (index_t task = 0; task < tasks; ++task) f(data, task, 0);
    }
};

}  // namespace calm
