#pragma once
// The context of the emulated device, and how it launches block kernels (kernel.hpp).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <typeinfo>

#include "calm/tensor/context.hpp"
#include "calm/tensor/emulated/device.hpp"
#include "calm/tensor/graph.hpp"
#include "calm/tensor/kernel.hpp"

namespace calm {

// Runs the block kernels of the GPU on the host, as a GPU would: what is asked for runs in order, and not before the
// host waits: in wait, fetch and copies to the host. The device is one for the process (emulated/device.hpp).
template <> class context<emulated> : public detail::device_context_base<emulated, context<emulated>> {
public:
    // threads: of the host, a block at a time each; 0 takes the machine's. The same bits at any number of them.
    explicit context(std::uint64_t run_seed = 0, int threads = 0) :
        device_context_base(run_seed), threads_(context<cpu>(0, threads).threads()) {}

    thread_order order = thread_order::ascending;  // of blocks, and of the threads in each
    std::size_t memory = std::size_t{80} << 30;    // bytes of the device that it stands for: see working_set.hpp
    bool uses_graphs = true;                       // for work that is done again: see tensor/graph.hpp

    [[nodiscard]] int threads() const { return threads_; }      // at least 1
    [[nodiscard]] bool records() const { return uses_graphs; }  // work that is done again, now
    // Returns when all that was asked for is done. Throws errc::device where a kernel wrote where it must not.
    void wait() const { detail::emulated_device::get().wait(); }
    // `bytes` bytes to dst on the device, taken when it returns; for copy.hpp.
    void upload(void* dst, void const* src, std::size_t bytes) const {
        count_upload(bytes);
        detail::emulated_device::get().upload(dst, src, bytes);
    }
    // The same to dst on the host, which waits as `wait` does.
    void download(void* dst, void const* src, std::size_t bytes) const {
        detail::emulated_device::get().download(dst, src, bytes);
    }
    // Products that a device's library does not support. Here is none, and the block kernel computes all.
    [[nodiscard]] static index_t unsupported_products() { return 0; }
    // The same of attention.
    [[nodiscard]] static index_t unsupported_attentions() { return 0; }
    // What was asked of the device, by all contexts, since the process began.
    [[nodiscard]] static device_counts counts() { return detail::emulated_device::get().counts(); }
    // Kernels that would have been launched but for a rehearsal, by all contexts.
    [[nodiscard]] static index_t rehearsed() { return detail::emulated_device::get().rehearsed(); }

private:
    int threads_;
};

// Runs the kernel on blocks 0 .. blocks - 1, after what was asked for before, when the host waits. Throws errc::device
// for a kernel that holds an address of the host.
template <class Kernel> void launch(context<emulated> const& ctx, index_t blocks, Kernel const& kernel) {
    static_assert(std::is_trivially_copyable_v<Kernel>, "calm::launch: a kernel is copied to the device as its bytes");
    if (blocks <= 0) return;
    auto& device = detail::emulated_device::get();
    if (ctx.rehearsing()) return device.rehearse_launch();
    Kernel given = kernel;
    std::uint64_t addresses = 0;
#if defined(__GNUC__) && !defined(__clang__)
    __builtin_clear_padding(&given);
    addresses = device.sum_of_addresses(&given, sizeof given, typeid(Kernel).name());
#endif
    device.launch(typeid(Kernel).name(), blocks, addresses,
                  [given, blocks, order = ctx.order, threads = ctx.threads()] {
                      detail::run_blocks(context<cpu>(0, threads), order, blocks, given);
                  });
}

// Refuses what a GPU refuses while it captures, and (g++) a kernel that is given other addresses than when it was
// recorded.
template <> class device_graph<emulated> {
public:
    // Records work. Throws errc::device for what no graph can hold.
    template <class Work>
    device_graph(context<emulated> const& ctx, Work const& work, std::size_t room) :
        made_(std::make_shared<detail::emulated_device::graph>(room)) {
        put(ctx, work);
    }
    // Its copies get the bytes that work gives them now. Throws errc::device where work is not what was recorded.
    template <class Work> void put(context<emulated> const&, Work const& work) {
        auto& device = detail::emulated_device::get();
        device.begin_graph(*made_);
        try {
            work();
        } catch (...) {
            device.forget_graph();
            throw;
        }
        device.end_graph();
    }
    // Runs it, after what was asked for before.
    void launch(context<emulated> const&) const { detail::emulated_device::get().launch(made_); }

private:
    std::shared_ptr<detail::emulated_device::graph> made_;
};

}  // namespace calm
