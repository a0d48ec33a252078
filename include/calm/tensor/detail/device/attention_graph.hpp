#pragma once
// Causal attention as a graph of matrix operations: plain data, which detail/device/cuda/cudnn_graph.hpp passes to
// cuDNN and tests evaluate. Dao et al. 2022 show how such a graph runs as one kernel.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "calm/tensor/detail/ops/attention_shape.hpp"

namespace calm::detail {

enum class graph_type { bf16, fp32, int32, boolean };

// An operation that computes y from a, b and c. Sizes are (sequences, heads, rows, columns); a size of 1 broadcasts.
// Results are fp32, rounded if y is bf16.
enum class graph_op {
    matmul,     // a b per head; if b has fewer heads, consecutive heads of a share one
    reshape,    // a with the sizes and strides of y
    sum,        // of groups of adjacent elements of a, along each dimension in which y is smaller
    largest,    // the maximum of such groups
    multiply,   // a b
    add,        // a + b
    subtract,   // a - b
    divide,     // a / b
    exp,        // of a
    log,        // of a
    row,        // the row index of each element
    column,     // the column index of each element
    not_below,  // a >= b
    select,     // c ? a : b
};

// The role of a tensor in attention; `inner` tensors exist only inside the graph.
enum class attention_part {
    inner,
    q,
    k,
    v,
    o,
    lse,
    dout,
    dq,
    dk,
    dv,
    delta,    // dout . o of each row: workspace of backward
    wide_dk,  // dk per query head, if several share a key head: workspace of backward
    wide_dv,
    scale,  // this and the following are scalars whose values are part of the graph
    lowest,
    one,
};

struct graph_tensor {
    attention_part part;
    graph_type type;
    std::array<std::int64_t, 4> sizes;    // sequences, heads, rows, columns
    std::array<std::int64_t, 4> strides;  // in elements
    float value = 0;                      // of a scalar

    [[nodiscard]] bool is_number() const { return part >= attention_part::scale; }
    // Elements from the first to the last, gaps included.
    [[nodiscard]] std::int64_t span() const {
        std::int64_t last = 0;
        for (std::size_t i = 0; i < 4; ++i) last += (sizes[i] - 1) * strides[i];
        return last + 1;
    }
};

// The operands are indices of tensors; -1: none.
struct graph_node {
    graph_op op;
    int y, a, b, c;
};

struct attention_graph {
    std::vector<graph_tensor> tensors;
    std::vector<graph_node> nodes;  // in execution order
};

// Device addresses of the parts of attention; null for a part that the graph does not have.
struct attention_memory {
    std::array<void*, static_cast<std::size_t>(attention_part::scale)> of{};
    void*& operator[](attention_part part) { return of[static_cast<std::size_t>(part)]; }
    void* operator[](attention_part part) const { return of[static_cast<std::size_t>(part)]; }
};

// One tensor for each part of a graph that is not `inner`.
inline std::vector<graph_tensor> outside_of(attention_graph const& g) {
    std::vector<graph_tensor> all;
    for (auto const& t : g.tensors) {
        bool const is_new = std::ranges::none_of(all, [&](auto const& known) { return known.part == t.part; });
        if (t.part != attention_part::inner && is_new) all.push_back(t);
    }
    return all;
}

// Builds the attention graphs of one shape. Private members return the index of a tensor.
class attention_graph_maker {
public:
    explicit attention_graph_maker(attention_shape const& shape) : a_(shape) {}

    // Computes o and lse from q, k and v.
    attention_graph forward() && {
        int const lse = column(attention_part::lse);
        int const seen = masked(scaled_scores());
        int const most = apply(graph_op::largest, column(), seen);
        int const weights = apply(graph_op::exp, scores(), apply(graph_op::subtract, scores(), seen, most));
        int const total = apply(graph_op::sum, column(), weights);
        apply(graph_op::add, lse, most, apply(graph_op::log, column(), total));
        int const probabilities = apply(graph_op::divide, scores(graph_type::bf16), weights, total);
        apply(graph_op::matmul, queries(attention_part::o), probabilities, keys(attention_part::v, a_.kv_heads));
        return std::move(graph_);
    }

    // Computes dq, dk and dv from dout and forward's inputs and results. Attention weights are recomputed from lse.
    attention_graph backward() && {
        int const dout = queries(attention_part::dout);
        int const q = queries(attention_part::q);
        int const k = turned(attention_part::k);
        int const delta = column(attention_part::delta);
        int const of_each = apply(graph_op::multiply, packed_queries(), dout, queries(attention_part::o));
        apply(graph_op::multiply, delta, apply(graph_op::sum, column(), of_each), number(attention_part::one, 1));

        int const scale = number(attention_part::scale, a_.scale<float>());
        int const products = apply(graph_op::matmul, scores(), q, k);
        int const scaled = apply(graph_op::multiply, scores(), products, scale);
        int const seen = masked(apply(graph_op::subtract, scores(), scaled, column(attention_part::lse)));
        int const weights = apply(graph_op::exp, scores(), seen);
        of_keys(attention_part::dv, attention_part::wide_dv, weights, dout);

        int const dweights = apply(graph_op::matmul, scores(), dout, turned(attention_part::v));
        int const apart = apply(graph_op::subtract, scores(), dweights, delta);
        int const ds = apply(graph_op::multiply, scores(), apply(graph_op::multiply, scores(), apart, weights), scale);
        of_keys(attention_part::dk, attention_part::wide_dk, ds, q);
        auto rows = keys(attention_part::inner, a_.kv_heads, graph_type::fp32);
        apply(graph_op::matmul, queries(attention_part::dq), ds, apply(graph_op::reshape, rows, k));
        return std::move(graph_);
    }

private:
    int add(graph_tensor const& t) {
        graph_.tensors.push_back(t);
        return static_cast<int>(graph_.tensors.size()) - 1;
    }
    int apply(graph_op op, int y, int a, int b = -1, int c = -1) {
        graph_.nodes.push_back({op, y, a, b, c});
        return y;
    }

    int number(attention_part part, float value) {
        return add({part, graph_type::fp32, {1, 1, 1, 1}, {1, 1, 1, 1}, value});
    }
    // (sequences, heads, queries, 1)
    int column(attention_part part = attention_part::inner) {
        return add({part,
                    graph_type::fp32,
                    {a_.sequences, a_.heads, a_.queries, 1},
                    {a_.heads * a_.queries, a_.queries, 1, 1}});
    }
    // (sequences, heads, queries, keys)
    int scores(graph_type type = graph_type::fp32) {
        return add({attention_part::inner,
                    type,
                    {a_.sequences, a_.heads, a_.queries, a_.keys},
                    {a_.heads * a_.queries * a_.keys, a_.queries * a_.keys, a_.keys, 1}});
    }
    // (sequences, heads, queries, head_size)
    int queries(attention_part part) {
        return add({part,
                    graph_type::bf16,
                    {a_.sequences, a_.heads, a_.queries, a_.head_size},
                    {a_.q_sequence, a_.head_size, a_.q_row, 1}});
    }
    int packed_queries() {
        return add({attention_part::inner,
                    graph_type::fp32,
                    {a_.sequences, a_.heads, a_.queries, a_.head_size},
                    {a_.heads * a_.queries * a_.head_size, a_.queries * a_.head_size, a_.head_size, 1}});
    }
    // (sequences, heads, keys, head_size), stored like k
    int keys(attention_part part, index_t heads, graph_type type = graph_type::bf16) {
        return add(
            {part, type, {a_.sequences, heads, a_.keys, a_.head_size}, {a_.kv_sequence, a_.head_size, a_.kv_row, 1}});
    }
    // (sequences, kv_heads, head_size, keys)
    int turned(attention_part part) {
        return add({part,
                    graph_type::bf16,
                    {a_.sequences, a_.kv_heads, a_.head_size, a_.keys},
                    {a_.kv_sequence, a_.head_size, 1, a_.kv_row}});
    }

    int scaled_scores() {
        int const products = apply(graph_op::matmul, scores(), queries(attention_part::q), turned(attention_part::k));
        return apply(graph_op::multiply, scores(), products, number(attention_part::scale, a_.scale<float>()));
    }
    // x where the query may see the key, -infinity elsewhere.
    int masked(int x) {
        int const row = apply(graph_op::row, scores(graph_type::int32), x);
        int const at = apply(graph_op::column, scores(graph_type::int32), x);
        int const seen = apply(graph_op::not_below, scores(graph_type::boolean), row, at);
        int const lowest = number(attention_part::lowest, -std::numeric_limits<float>::infinity());
        return apply(graph_op::select, scores(), x, lowest, seen);
    }
    // x (scores)^T y (queries), summed over the query heads of each key head.
    void of_keys(attention_part part, attention_part wide, int x, int y) {
        int const turned = add({attention_part::inner,
                                graph_type::bf16,
                                {a_.sequences, a_.heads, a_.keys, a_.queries},
                                {a_.heads * a_.queries * a_.keys, a_.queries * a_.keys, 1, a_.keys}});
        apply(graph_op::reshape, turned, x);
        if (a_.group() == 1) {
            apply(graph_op::matmul, keys(part, a_.heads), turned, y);
            return;
        }
        int const of_heads = add({wide,
                                  graph_type::bf16,
                                  {a_.sequences, a_.heads, a_.keys, a_.head_size},
                                  {a_.heads * a_.keys * a_.head_size, a_.keys * a_.head_size, a_.head_size, 1}});
        apply(graph_op::matmul, of_heads, turned, y);
        apply(graph_op::sum, keys(part, a_.kv_heads), of_heads);
    }

    attention_shape a_;
    attention_graph graph_;
};

inline attention_graph forward_graph(attention_shape const& a) {
    return attention_graph_maker(a).forward();
}
inline attention_graph backward_graph(attention_shape const& a) {
    return attention_graph_maker(a).backward();
}

}  // namespace calm::detail
