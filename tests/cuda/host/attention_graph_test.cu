// Checks that cuDNN offers engines for the attention graphs on a device that is only described, so no GPU is needed.
// Arguments: the file that describes the device, and the toolkit's driver stub, which is loaded if there is no driver.
// Without either, cuDNN offers nothing.
#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "calm/tensor/detail/device/cuda/cudnn_graph.hpp"
#include "calm/tensor/ops/attention.hpp"
#include "on_device.hpp"

using namespace calm::test;
using calm::index_t;

#if __has_include(<cudnn.h>)

namespace {

using calm::detail::attention_graph;
using calm::detail::attention_shape;

struct attended {
    char const* what;
    index_t sequences, positions, heads, kv_heads, head_size;
    [[nodiscard]] attention_shape shape() const {
        return calm::detail::shape_of_attention({sequences * positions, heads * head_size}, kv_heads * head_size,
                                                positions, head_size);
    }
};

// Reads descriptors back and compares them; element-wise operations cannot be read back.
class told {
public:
    explicit told(attention_graph const& g) : graph_(g), told_(g, nullptr) {}

    void check_all(char const* what) const {
        for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
            check(is_told(graph_.nodes[i], told_.operation(i), told_.how(i)),
                  calm::sentence(what, ": node ", i).c_str());
        }
    }

private:
    using object = calm::detail::cudnn_object;
    using op = calm::detail::graph_op;

    template <class V> static V value(object const& one, cudnnBackendAttributeName_t name) {
        return one.template value<V>(name);
    }
    // Whether an operand of an operation is tensor i.
    [[nodiscard]] bool is(object const& operation, cudnnBackendAttributeName_t name, int i) const {
        auto const& t = graph_.tensors.at(static_cast<std::size_t>(i));
        auto const one = operation.object(name, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        bool const is_inner = t.part == calm::detail::attention_part::inner;
        auto const id = is_inner ? 100 + i : static_cast<std::int64_t>(t.part);
        auto const sizes = one.values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, 4);
        auto const strides = one.values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES, 4);
        using type = calm::detail::graph_type;
        auto const stored = t.type == type::bf16    ? CUDNN_DATA_BFLOAT16
                            : t.type == type::fp32  ? CUDNN_DATA_FLOAT
                            : t.type == type::int32 ? CUDNN_DATA_INT32
                                                    : CUDNN_DATA_BOOLEAN;
        return value<std::int64_t>(one, CUDNN_ATTR_TENSOR_UNIQUE_ID) == id &&
               value<bool>(one, CUDNN_ATTR_TENSOR_IS_VIRTUAL) == is_inner &&
               value<bool>(one, CUDNN_ATTR_TENSOR_IS_BY_VALUE) == t.is_number() &&
               value<cudnnDataType_t>(one, CUDNN_ATTR_TENSOR_DATA_TYPE) == stored &&
               std::ranges::equal(sizes, t.sizes) && std::ranges::equal(strides, t.strides);
    }
    [[nodiscard]] bool is_told(calm::detail::graph_node const& n, object const& one, object const& how) const {
        switch (n.op) {
        case op::matmul:
            return value<cudnnDataType_t>(how, CUDNN_ATTR_MATMUL_COMP_TYPE) == CUDNN_DATA_FLOAT &&
                   is(one, CUDNN_ATTR_OPERATION_MATMUL_ADESC, n.a) && is(one, CUDNN_ATTR_OPERATION_MATMUL_BDESC, n.b) &&
                   is(one, CUDNN_ATTR_OPERATION_MATMUL_CDESC, n.y);
        case op::reshape:
            return is(one, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, n.a) && is(one, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, n.y);
        case op::sum:
        case op::largest:
            return value<cudnnReduceTensorOp_t>(how, CUDNN_ATTR_REDUCTION_OPERATOR) ==
                       (n.op == op::sum ? CUDNN_REDUCE_TENSOR_ADD : CUDNN_REDUCE_TENSOR_MAX) &&
                   is(one, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, n.a) &&
                   is(one, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, n.y);
        default:
            return true;
        }
    }
    attention_graph const& graph_;
    calm::detail::cudnn_graph told_;
};

void operations_have_their_names() {
    using op = calm::detail::graph_op;
    struct row {
        op of;
        calm::detail::cudnn_pointwise is;
    };
    for (auto const& [of, is] : {row{op::multiply, {CUDNN_POINTWISE_MUL}}, row{op::add, {CUDNN_POINTWISE_ADD}},
                                 row{op::subtract, {CUDNN_POINTWISE_SUB}}, row{op::divide, {CUDNN_POINTWISE_DIV}},
                                 row{op::exp, {CUDNN_POINTWISE_EXP}}, row{op::log, {CUDNN_POINTWISE_LOG}},
                                 row{op::row, {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2}},
                                 row{op::column, {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3}},
                                 row{op::not_below, {CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN}},
                                 row{op::select, {CUDNN_POINTWISE_BINARY_SELECT}}})
        check(calm::detail::pointwise_of(of) == is, "an operation on elements");
}

// Makes the plan for the best engine, up to the steps that need a driver: code is compiled but not loaded.
bool is_planned(calm::detail::cudnn_object const& way, calm::detail::cudnn_target const& target) {
    auto const status = calm::detail::plan_of(way, target).finalise();
    return status == CUDNN_STATUS_SUCCESS || status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
}

std::size_t ways(attention_graph const& g, calm::detail::cudnn_object const& device, char const* what) {
    calm::detail::cudnn_target const target{nullptr, &device};
    calm::detail::cudnn_graph const graph(g, nullptr);
    auto const found = calm::detail::ways_of(graph, target);
    for (auto const& way : found) {
        auto const bytes = way.value<std::int64_t>(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
        check(bytes >= 0 && bytes < std::int64_t{1} << 36, what);
        std::printf("%s: %lld bytes\n", what, static_cast<long long>(bytes));
    }
    if (!found.empty()) check(is_planned(found.front(), target), what);
    return found.size();
}

void check_supported(attended const& a, calm::detail::cudnn_object const& device) {
    for (auto const& g : {calm::detail::forward_graph(a.shape()), calm::detail::backward_graph(a.shape())})
        told(g).check_all(a.what);
    check(ways(calm::detail::forward_graph(a.shape()), device, a.what) > 0, a.what);
    check(ways(calm::detail::backward_graph(a.shape()), device, a.what) > 0, a.what);
}
void check_refused(attended const& a, calm::detail::cudnn_object const& device) {
    check(ways(calm::detail::forward_graph(a.shape()), device, a.what) == 0, a.what);
    check(ways(calm::detail::backward_graph(a.shape()), device, a.what) == 0, a.what);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        // Later loads of libcuda.so.1 then find the stub under that name.
        if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr && argc > 2)
            check(dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL) != nullptr, "the toolkit's stub of the driver");
        std::ifstream file(argc > 1 ? argv[1] : "");
        std::stringstream text;
        text << file.rdbuf();
        auto const device = calm::detail::described_device(text.str());
        operations_have_their_names();
        for (attended const& a : {attended{"tiny", 8, 64, 4, 4, 32},
                                  {"text", 8, 128, 4, 4, 64},
                                  {"small", 4, 256, 8, 8, 64},
                                  {"calm-m", 4, 2048, 16, 16, 64},
                                  {"odd positions", 3, 333, 4, 4, 64},
                                  {"heads of 128", 2, 512, 8, 8, 128},
                                  {"grouped heads", 4, 256, 8, 2, 64},
                                  {"one head of keys", 4, 256, 8, 1, 64}})
            check_supported(a, device);
        for (attended const& a : {attended{"heads of 7", 4, 256, 8, 8, 7}, {"heads of 12", 4, 256, 8, 8, 12}})
            check_refused(a, device);
        check_refused("no description", calm::errc::device,
                      [] { static_cast<void>(calm::detail::described_device("{")); });
    } catch (std::exception const& e) {
        check(false, e.what());
    }
    return failures == 0 ? 0 : 1;
}

#else

int main() {
    std::fprintf(stderr, "skipped: cudnn.h is not here\n");
    return 77;
}

#endif
