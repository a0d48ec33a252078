#pragma once
/// \file
/// The context of the emulated device, and how it launches block kernels (kernel.hpp).
/// \shows{tests/emulated/device_test.cpp,numbers_are_copied_to_the_device_and_back}

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <typeinfo>

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/detail/device/emulated/device.hpp"
#include "calm/tensor/detail/device/graph.hpp"

namespace calm {

/// Runs the block kernels of the GPU on the host, as late as a GPU might: in order, but only when the host waits, in
/// wait, fetch and copies to the host. There is one device per process (detail/device/emulated/device.hpp).
template <> class context<emulated> : public detail::device_context_base<emulated, context<emulated>> {
public:
    /// threads: of the host, each with one block at a time; 0 uses all of the machine's. The results do not depend on
    /// it.
    explicit context(std::uint64_t run_seed = 0, int threads = 0) :
        device_context_base(run_seed), threads_(context<cpu>(0, threads).threads()) {}

    thread_order order = thread_order::ascending;  ///< of blocks, and of the threads in each
    std::size_t memory = std::size_t{80} << 30;    ///< bytes of the device that it emulates: see working_set.hpp
    bool uses_graphs = true;  ///< whether repeated work runs as graphs (tensor/detail/device/graph.hpp)

    [[nodiscard]] int threads() const { return threads_; }      ///< at least 1
    [[nodiscard]] bool records() const { return uses_graphs; }  ///< whether repeated work is captured
    /// Returns when all work is done. Throws errc::device if a kernel wrote where it must not.
    void wait() const { detail::emulated_device::get().wait(); }
    /// Copies `bytes` bytes to dst on the device, for copy.hpp; src may change after it returns.
    void upload(void* dst, void const* src, std::size_t bytes) const {
        count_upload(bytes);
        detail::emulated_device::get().upload(dst, src, bytes);
    }
    /// Copies to dst on the host, and waits as `wait` does.
    void download(void* dst, void const* src, std::size_t bytes) const {
        detail::emulated_device::get().download(dst, src, bytes);
    }
    /// Products that a device's library does not support: none, as the block kernel computes all of them.
    [[nodiscard]] static index_t unsupported_products() { return 0; }
    /// Attention that a device's library does not support: none.
    [[nodiscard]] static index_t unsupported_attentions() { return 0; }
    /// Counts of the work that all contexts gave the device since the process began.
    [[nodiscard]] static device_counts counts() { return detail::emulated_device::get().counts(); }
    /// Kernels that dry runs would have launched, in all contexts.
    [[nodiscard]] static index_t dry_launches() { return detail::emulated_device::get().dry_launches(); }

private:
    int threads_;
};

/// Runs the kernel on blocks 0 .. blocks - 1, after all earlier work, when the host waits. Throws errc::device for a
/// kernel that holds a host address.
template <class Kernel> void launch(context<emulated> const& ctx, index_t blocks, Kernel const& kernel) {
    static_assert(std::is_trivially_copyable_v<Kernel>, "calm::launch: a kernel is copied to the device as its bytes");
    if (blocks <= 0) return;
    auto& device = detail::emulated_device::get();
    if (ctx.is_dry_run()) return device.count_dry_launch();
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

/// Refuses what GPUs refuse during capture, and (g++) a kernel whose addresses differ from the recorded ones.
template <> class device_graph<emulated> {
public:
    /// Captures work. Throws errc::device for operations that a graph cannot contain.
    template <class Work>
    device_graph(context<emulated> const& ctx, Work const& work, std::size_t room) :
        made_(std::make_shared<detail::emulated_device::graph>(room)) {
        update(ctx, work);
    }
    /// Calls work() to update the bytes of its copies. Throws errc::device if the work differs from the recording.
    template <class Work> void update(context<emulated> const&, Work const& work) {
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
    /// Queues the graph after all earlier work.
    void launch(context<emulated> const&) const { detail::emulated_device::get().launch(made_); }

private:
    std::shared_ptr<detail::emulated_device::graph> made_;
};

}  // namespace calm
