#pragma once
// Attention by cuDNN: one handle, and the plans for each shape.

#ifdef __CUDACC__

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "calm/tensor/detail/device/attention_graph.hpp"
#include "calm/tensor/detail/device/cuda/cudnn_graph.hpp"
#include "calm/tensor/detail/device/cuda/device.hpp"

namespace calm::detail {

#if __has_include(<cudnn.h>)

// A graph's plan, and the tensors that it takes.
class attention_plan {
public:
    // None if cuDNN cannot compute the graph.
    static std::optional<attention_plan> make(attention_graph const& g, cudnn_target const& target) {
        auto plan = cudnn_plan::make(g, target);
        if (!plan) return std::nullopt;
        return attention_plan(std::move(*plan), outside_of(g));
    }
    [[nodiscard]] std::int64_t workspace() const { return plan_.workspace; }  // bytes

    // Runs the plan, with `workspace` bytes at `room`.
    void run(cudnnHandle_t handle, attention_memory const& memory, void* room) const {
        std::vector<std::int64_t> ids;
        std::vector<void*> places;
        for (auto const& t : outside_) {
            ids.push_back(id_of(t.part));
            places.push_back(t.is_number() ? const_cast<float*>(&t.value) : memory[t.part]);
        }
        plan_.run(handle, ids, places, room);
    }

private:
    attention_plan(cudnn_plan&& plan, std::vector<graph_tensor>&& outside) :
        plan_(std::move(plan)), outside_(std::move(outside)) {}
    cudnn_plan plan_;
    std::vector<graph_tensor> outside_;
};

// The plans of a context. A shape is planned once, forward and backward together or neither: backward needs forward's
// outputs.
class attention_plans {
public:
    struct both {
        attention_plan forward;
        attention_plan backward;
    };

    // None if cuDNN does not support the shape. Throws errc::device for any other failure.
    std::optional<both> const& of(attention_shape const& a, cudaStream_t queue) {
        std::array<index_t, 6> const key{a.sequences, a.queries, a.keys, a.heads, a.kv_heads, a.head_size};
        if (auto const known = plans_.find(key); known != plans_.end()) return known->second;
        if (plans_.size() >= most_shapes) plans_.clear();
        current_device const here;
        cudnn_target const target{handle(queue), nullptr};
        auto forward = attention_plan::make(forward_graph(a), target);
        auto backward = forward ? attention_plan::make(backward_graph(a), target) : std::nullopt;
        auto& made = plans_[key];
        if (backward) made.emplace(both{std::move(*forward), std::move(*backward)});
        return made;
    }
    void run(attention_plan const& plan, attention_memory const& memory, void* room, cudaStream_t queue) {
        current_device const here;
        plan.run(handle(queue), memory, room);
    }

    void count_unsupported() { ++unsupported_; }
    // Number of computations left to the block kernels.
    [[nodiscard]] index_t unsupported() const { return unsupported_; }

private:
    static constexpr std::size_t most_shapes = 256;  // bounds the memory
    struct destroy {
        void operator()(cudnnHandle_t handle) const { (void)cudnnDestroy(handle); }
    };

    // Created on first use, as it takes time and memory.
    cudnnHandle_t handle(cudaStream_t queue) {
        if (handle_ == nullptr) {
            cudnnHandle_t made = nullptr;
            check_cudnn(cudnnCreate(&made), "starting cuDNN");
            handle_.reset(made);
            check_cudnn(cudnnSetStream(made, queue), "starting cuDNN");
        }
        return handle_.get();
    }

    std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, destroy> handle_;
    std::map<std::array<index_t, 6>, std::optional<both>> plans_;
    index_t unsupported_ = 0;
};

#else

struct attention_plans {  // without cuDNN: the block kernels compute everything
    [[nodiscard]] static index_t unsupported() { return 0; }
};

#endif

}  // namespace calm::detail

#endif
