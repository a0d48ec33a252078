#pragma once
// A graph described to cuDNN through its C interface, and the plan that cuDNN makes for it. Describing needs no device.
// Empty where the library is absent.

#if defined(__CUDACC__) && __has_include(<cudnn.h>)

#include <cudnn.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/tensor/detail/device/attention_graph.hpp"

namespace calm::detail {

inline void check_cudnn(cudnnStatus_t status, char const* tried) {
    if (status != CUDNN_STATUS_SUCCESS)
        throw error(errc::device, sentence("calm::cuda: ", tried, ": ", cudnnGetErrorString(status)));
}

// cuDNN's attribute type for values of type V.
template <class V> inline constexpr cudnnBackendAttributeType_t cudnn_attribute = CUDNN_TYPE_INT64;
template <> inline constexpr auto cudnn_attribute<bool> = CUDNN_TYPE_BOOLEAN;
template <> inline constexpr auto cudnn_attribute<char> = CUDNN_TYPE_CHAR;
template <> inline constexpr auto cudnn_attribute<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <> inline constexpr auto cudnn_attribute<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <> inline constexpr auto cudnn_attribute<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <> inline constexpr auto cudnn_attribute<cudnnReduceTensorOp_t> = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
template <> inline constexpr auto cudnn_attribute<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <> inline constexpr auto cudnn_attribute<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;
template <> inline constexpr auto cudnn_attribute<cudnnBackendDescriptor_t> = CUDNN_TYPE_BACKEND_DESCRIPTOR;
static_assert(std::is_same_v<cudnnBackendDescriptor_t, void*>);  // so addresses of memory need their type given

// Owns one cuDNN descriptor.
class cudnn_object {
public:
    explicit cudnn_object(cudnnBackendDescriptorType_t type) {
        cudnnBackendDescriptor_t made = nullptr;
        check_cudnn(cudnnBackendCreateDescriptor(type, &made), "describing a graph");
        made_.reset(made);
    }
    [[nodiscard]] cudnnBackendDescriptor_t get() const { return made_.get(); }

    template <class V>
    void set_all(cudnnBackendAttributeName_t name, std::span<V const> values,
                 cudnnBackendAttributeType_t type = cudnn_attribute<V>) {
        check_cudnn(
            cudnnBackendSetAttribute(get(), name, type, static_cast<std::int64_t>(values.size()), values.data()),
            "describing a graph");
    }
    template <class V> void set(cudnnBackendAttributeName_t name, V const& value) {
        set_all(name, std::span<V const>(&value, 1));
    }
    void set(cudnnBackendAttributeName_t name, cudnn_object const& value) { set(name, value.get()); }
    cudnnStatus_t finalise() { return cudnnBackendFinalize(get()); }

    // Up to `most` values of an attribute.
    template <class V> [[nodiscard]] std::vector<V> values(cudnnBackendAttributeName_t name, std::int64_t most) const {
        std::vector<V> all(static_cast<std::size_t>(most));
        std::int64_t count = 0;
        check_cudnn(cudnnBackendGetAttribute(get(), name, cudnn_attribute<V>, most, &count, all.data()),
                    "querying a graph");
        all.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, most)));
        return all;
    }
    // The value of an attribute that has one.
    template <class V> [[nodiscard]] V value(cudnnBackendAttributeName_t name) const {
        V one{};
        std::int64_t count = 0;
        check_cudnn(cudnnBackendGetAttribute(get(), name, cudnn_attribute<V>, 1, &count, &one), "querying a graph");
        return one;
    }
    // An attribute that is a descriptor.
    [[nodiscard]] cudnn_object object(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const {
        cudnn_object one(type);
        cudnnBackendDescriptor_t place = one.get();
        std::int64_t count = 0;
        check_cudnn(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &place),
                    "querying a graph");
        return one;
    }

private:
    struct destroy {
        void operator()(cudnnBackendDescriptor_t d) const { (void)cudnnBackendDestroyDescriptor(d); }
    };
    std::unique_ptr<std::remove_pointer_t<cudnnBackendDescriptor_t>, destroy> made_;
};

// The device that plans are made for: a handle's, or one that is only described.
struct cudnn_target {
    cudnnHandle_t handle = nullptr;
    cudnn_object const* properties = nullptr;
};

// A device from cuDNN's JSON description. Throws errc::device if this is not one.
inline cudnn_object described_device(std::string_view json) {
    cudnn_object device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device.set_all(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span<char const>(json));
    check_cudnn(device.finalise(), "describing a device");
    return device;
}

// Whether a status only says that cuDNN does not support something.
inline bool is_unsupported(cudnnStatus_t status) {
    return status != CUDNN_STATUS_SUCCESS && status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000;
}

// The id under which a plan is given the memory of a part.
inline std::int64_t id_of(attention_part part) {
    return static_cast<std::int64_t>(part);
}

// cuDNN's name for an element-wise operation, its compute type and, for indices, the axis that they count along.
struct cudnn_pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    std::int64_t axis = -1;
    bool operator==(cudnn_pointwise const&) const = default;
};
inline cudnn_pointwise pointwise_of(graph_op op) {
    switch (op) {
    case graph_op::multiply:
        return {CUDNN_POINTWISE_MUL};
    case graph_op::add:
        return {CUDNN_POINTWISE_ADD};
    case graph_op::subtract:
        return {CUDNN_POINTWISE_SUB};
    case graph_op::divide:
        return {CUDNN_POINTWISE_DIV};
    case graph_op::exp:
        return {CUDNN_POINTWISE_EXP};
    case graph_op::log:
        return {CUDNN_POINTWISE_LOG};
    case graph_op::row:
        return {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2};
    case graph_op::column:
        return {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3};
    case graph_op::not_below:
        return {CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN};
    case graph_op::select:
        return {CUDNN_POINTWISE_BINARY_SELECT};
    default:
        throw error(errc::device, "calm::cuda: expected an element-wise operation that cuDNN has, found another one");
    }
}

inline constexpr std::int64_t cudnn_alignment = 16;  // bytes, for all memory given to a plan

// A graph as cuDNN descriptors.
class cudnn_graph {
public:
    // Throws errc::device if cuDNN refuses a description; `status` says whether it supports the graph.
    cudnn_graph(attention_graph const& g, cudnnHandle_t handle) : whole_(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
        for (auto const& t : g.tensors) add(t);
        std::vector<cudnnBackendDescriptor_t> all;
        for (auto const& node : g.nodes) {
            all.push_back(add(node));
            operations_.push_back(parts_.size() - 1);
        }
        whole_.set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<cudnnBackendDescriptor_t const>(all));
        if (handle != nullptr) whole_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
        status_ = status_ != CUDNN_STATUS_SUCCESS ? status_ : whole_.finalise();
    }
    [[nodiscard]] cudnnStatus_t status() const { return status_; }  // result of finalising the descriptors
    [[nodiscard]] cudnn_object const& whole() const { return whole_; }
    // The descriptor of node i. How the node is computed is in the descriptor before it, except for a reshape.
    [[nodiscard]] cudnn_object const& operation(std::size_t i) const { return parts_[operations_[i]]; }
    [[nodiscard]] cudnn_object const& how(std::size_t i) const { return parts_[operations_[i] - 1]; }

private:
    cudnnBackendDescriptor_t finished(cudnn_object&& one) {
        auto const status = one.finalise();
        if (status_ == CUDNN_STATUS_SUCCESS) status_ = status;
        parts_.push_back(std::move(one));
        return parts_.back().get();
    }

    static cudnnDataType_t type_of(graph_type type) {
        switch (type) {
        case graph_type::bf16:
            return CUDNN_DATA_BFLOAT16;
        case graph_type::int32:
            return CUDNN_DATA_INT32;
        case graph_type::boolean:
            return CUDNN_DATA_BOOLEAN;
        default:
            return CUDNN_DATA_FLOAT;
        }
    }
    void add(graph_tensor const& t) {
        cudnn_object one(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        bool const is_inner = t.part == attention_part::inner;
        // Ids of inner tensors follow the ids of all parts.
        auto const id = is_inner ? 100 + static_cast<std::int64_t>(tensors_.size()) : id_of(t.part);
        one.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(t.type));
        one.set_all(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<std::int64_t const>(t.sizes));
        one.set_all(CUDNN_ATTR_TENSOR_STRIDES, std::span<std::int64_t const>(t.strides));
        one.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
        one.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, cudnn_alignment);
        one.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_inner);
        one.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, t.is_number());
        tensors_.push_back(finished(std::move(one)));
    }

    [[nodiscard]] cudnnBackendDescriptor_t tensor(int i) const { return tensors_[static_cast<std::size_t>(i)]; }

    cudnnBackendDescriptor_t add(graph_node const& n) {
        switch (n.op) {
        case graph_op::matmul: {
            cudnn_object how(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
            how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
            cudnn_object one(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
            one.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, finished(std::move(how)));
            one.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor(n.a));
            one.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor(n.b));
            one.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor(n.y));
            return finished(std::move(one));
        }
        case graph_op::reshape: {
            cudnn_object one(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
            one.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensor(n.a));
            one.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensor(n.y));
            return finished(std::move(one));
        }
        case graph_op::sum:
            return reduction(n, CUDNN_REDUCE_TENSOR_ADD);
        case graph_op::largest:
            return reduction(n, CUDNN_REDUCE_TENSOR_MAX);
        default:
            return pointwise(n, pointwise_of(n.op));
        }
    }
    cudnnBackendDescriptor_t reduction(graph_node const& n, cudnnReduceTensorOp_t op) {
        cudnn_object how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
        how.set(CUDNN_ATTR_REDUCTION_OPERATOR, op);
        how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
        cudnn_object one(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
        one.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, finished(std::move(how)));
        one.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensor(n.a));
        one.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensor(n.y));
        return finished(std::move(one));
    }
    cudnnBackendDescriptor_t pointwise(graph_node const& n, cudnn_pointwise const& op) {
        cudnn_object how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
        how.set(CUDNN_ATTR_POINTWISE_MODE, op.mode);
        how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, op.type);
        if (op.axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, op.axis);
        cudnn_object one(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
        one.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, finished(std::move(how)));
        one.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor(n.a));
        if (n.b >= 0) one.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(n.b));
        if (n.c >= 0) one.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensor(n.c));
        one.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensor(n.y));
        return finished(std::move(one));
    }

    std::vector<cudnn_object> parts_;
    std::vector<std::size_t> operations_;  // indices into parts_
    std::vector<cudnnBackendDescriptor_t> tensors_;
    cudnn_object whole_;
    cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
};

// The configurations that cuDNN's heuristics offer for a graph, best first, without nondeterministic ones; empty if
// cuDNN supports none. Throws errc::device for any other failure.
inline std::vector<cudnn_object> ways_of(cudnn_graph const& graph, cudnn_target const& target) {
    std::vector<cudnn_object> found;
    if (is_unsupported(graph.status())) return found;
    check_cudnn(graph.status(), "describing a graph");
    cudnn_object choice(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    choice.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.whole());
    choice.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
    if (target.properties != nullptr) choice.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
    auto const status = choice.finalise();
    if (is_unsupported(status)) return found;
    check_cudnn(status, "choosing how to compute a graph");

    constexpr std::int64_t most = 8;
    std::vector<cudnn_object> offered;
    std::vector<cudnnBackendDescriptor_t> places;
    for (std::int64_t i = 0; i < most; ++i) {
        offered.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        places.push_back(offered.back().get());
    }
    std::int64_t count = 0;
    check_cudnn(cudnnBackendGetAttribute(choice.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         most, &count, places.data()),
                "querying a graph");
    for (std::int64_t i = 0; i < std::min(count, most); ++i) {
        auto& way = offered[static_cast<std::size_t>(i)];
        auto const engine = way.object(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        auto const notes = engine.values<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                                      CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
        if (std::ranges::count(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == 0) found.push_back(std::move(way));
    }
    return found;
}

// A plan for one of those configurations, not yet finalised.
inline cudnn_object plan_of(cudnn_object const& way, cudnn_target const& target) {
    cudnn_object plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, way);
    if (target.handle != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
    if (target.properties != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
    return plan;
}

// How a graph is computed on a device, and the workspace that this needs.
struct cudnn_plan {
    cudnn_object plan;
    std::int64_t workspace;  // bytes

    // Uses the first configuration that works on the device; none if there is no such. Throws as above.
    static std::optional<cudnn_plan> make(attention_graph const& g, cudnn_target const& target) {
        cudnn_graph const graph(g, target.handle);
        for (auto const& way : ways_of(graph, target)) {
            auto plan = plan_of(way, target);
            auto const status = plan.finalise();
            if (is_unsupported(status)) continue;
            check_cudnn(status, "planning a graph");
            auto const bytes = plan.value<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
            return cudnn_plan{std::move(plan), bytes};
        }
        return std::nullopt;
    }

    // `memory` has an address per id: on the device, or on the host for values passed by value.
    void run(cudnnHandle_t handle, std::span<std::int64_t const> ids, std::span<void* const> memory, void* room) const {
        cudnn_object pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        pack.set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
        pack.set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, memory, CUDNN_TYPE_VOID_PTR);
        pack.set_all(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, std::span<void* const>(&room, 1), CUDNN_TYPE_VOID_PTR);
        check_cudnn(pack.finalise(), "binding memory to a graph");
        check_cudnn(cudnnBackendExecute(handle, plan.get(), pack.get()), "computing a graph");
    }
};

}  // namespace calm::detail

#endif
