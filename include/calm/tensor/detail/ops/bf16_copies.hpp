#pragma once
// bf16 copies of matrices that many products read before they change, such as weights between two updates. A device
// that multiplies in bf16 rounds them once, in one launch, instead of once per product. With stochastic rounding all
// products must read the same copy, so the cpu makes copies too.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/bf16.hpp"
#include "calm/base/random.hpp"
#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/core/kernel.hpp"
#include "calm/tensor/detail/core/for_each.hpp"
#include "calm/tensor/detail/core/group.hpp"

namespace calm {

namespace detail {

inline constexpr index_t copied_at_once = 8;  // elements of a group, 16 bytes in bf16

// The conversion to bf16 on store already rounds to nearest.
struct round_to_nearest {
    CALM_HD group<float, copied_at_once> operator()(group<float, copied_at_once> const& x, std::uint64_t) const {
        return x;
    }
};
// Stochastic rounding: each element of group `number` uses 16 bits of Philox block `number`.
struct round_at_random {
    key draws;
    CALM_HD group<float, copied_at_once> operator()(group<float, copied_at_once> x, std::uint64_t number) const {
        philox_block const random = philox(draws, number);
        for (int l = 0; l < static_cast<int>(copied_at_once); ++l)
            x.lane[l] = bf16::at_random(x.lane[l], random.v[l / 2] >> (l % 2 * 16));
        return x;
    }
};

// A contiguous matrix of whole groups, and its copy: bf16, or float that holds bf16 values.
template <class Number> struct copied_matrix {
    float const* from;
    Number* to;
    index_t size;
    std::uint64_t groups_before;  // in the matrices before it

    // Copies the group that begins at element i.
    template <class Rounding> CALM_HD void copy_group(index_t i, Rounding const& rounded) const {
        auto const number = groups_before + static_cast<std::uint64_t>(i / copied_at_once);
        store_group(to + i, rounded(load_group<float, copied_at_once>(from + i), number));
    }
};

// The part of one matrix that a block copies: at most `size` elements from `begin` on.
struct copied_part {
    static constexpr index_t size = 16'384;
    index_t matrix;
    index_t begin;
};

template <class Rounding> struct round_copies_kernel {
    static constexpr int threads = 256;
    struct shared {};
    copied_matrix<bf16> const* matrices;
    copied_part const* parts;
    Rounding rounded;

    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            auto const& matrix = matrices[parts[block].matrix];
            index_t const begin = parts[block].begin;
            index_t const end = begin + copied_part::size < matrix.size ? begin + copied_part::size : matrix.size;
            for (index_t i = begin + t * copied_at_once; i < end; i += threads * copied_at_once)
                matrix.copy_group(i, rounded);
        });
    }
};

// Whether products of float run in bf16 (bf16_products.hpp).
template <class Backend> bool multiplies_in_bf16(context<Backend> const& ctx) {
    if constexpr (device_memory<Backend>)
        return ctx.products_in_bf16;
    else
        return ctx.products != nullptr;
}

}  // namespace detail

// bf16 copies of the matrices that products read; the matrices must outlive this object. On the host a copy is float
// that holds bf16 values, made only for stochastic rounding; otherwise each product rounds to nearest on its own.
template <class Backend> class bf16_copies {
public:
    using number = std::conditional_t<device_memory<Backend>, bf16, float>;  // element type of a copy

    // Adds a contiguous matrix (rows, columns), before the first use. Unless its rows are multiples of 16 bytes in
    // bf16, it gets no copy and its products round to nearest. Its random bits depend on the matrices added before.
    void add(float const* matrix, index_t rows, index_t columns) {
        if (columns % detail::copied_at_once != 0 || rows * columns <= 0) return;
        all_.push_back({{matrix, nullptr, rows * columns, groups_}});
        groups_ += static_cast<std::uint64_t>(rows * columns / detail::copied_at_once);
    }

    // Products of a context use copies until the scope ends.
    class scope {
    public:
        // Null: no copies.
        scope(context<Backend>& ctx, bf16_copies const* copies) : ctx_(&ctx) { ctx.copies = copies; }
        scope(scope&& other) noexcept : ctx_(std::exchange(other.ctx_, nullptr)) {}  // takes over from `other`
        scope& operator=(scope&&) = delete;
        ~scope() {
            if (ctx_ != nullptr) ctx_->copies = nullptr;
        }

    private:
        context<Backend>* ctx_;
    };

    // If ctx multiplies in bf16, copies the current values of all matrices that a product has requested so far, dry
    // runs included. Products of ctx use the copies until the scope ends; end it before the matrices change. Stochastic
    // rounding depends only on the matrices and on the seed and step of ctx.
    [[nodiscard]] scope use(context<Backend>& ctx, weight_rounding rounding = weight_rounding::nearest) {
        bool const at_random = rounding == weight_rounding::stochastic;
        if (!detail::multiplies_in_bf16(ctx) || (host_memory<Backend> && !at_random)) return scope(ctx, nullptr);
        if (!is_sorted_) std::ranges::sort(all_, {}, [](auto const& one) { return one.matrix.from; });
        is_sorted_ = true;
        if (!ctx.is_dry_run()) {
            take();
            if (at_random)
                copy(ctx, detail::round_at_random{ctx.random(stream::rounding)});
            else if constexpr (device_memory<Backend>)
                copy(ctx, detail::round_to_nearest{});
        }
        return scope(ctx, this);
    }

    // The copy of an added matrix from element x on, where x begins a group. Null for any other x, and before the copy
    // exists: the next `use` then makes it.
    [[nodiscard]] number const* of(float const* x) const {
        auto const behind = std::upper_bound(all_.begin(), all_.end(), x,
                                             [](float const* p, auto const& one) { return p < one.matrix.from; });
        if (behind == all_.begin()) return nullptr;
        auto const& one = behind[-1];
        index_t const at = x - one.matrix.from;
        if (at >= one.matrix.size || at % detail::copied_at_once != 0) return nullptr;
        one.is_asked_for = true;
        return one.matrix.to == nullptr ? nullptr : one.matrix.to + at;
    }

    // Bytes of all copies requested so far.
    [[nodiscard]] std::size_t bytes() const {
        std::size_t all = 0;
        for (auto const& one : all_)
            if (one.is_asked_for) all += static_cast<std::size_t>(one.matrix.size) * sizeof(number);
        return all;
    }

private:
    struct known {
        detail::copied_matrix<number> matrix;
        mutable bool is_asked_for = false;
    };

    // Takes memory for newly requested copies.
    void take() {
        bool has_more = false;
        for (auto& one : all_) {
            if (!one.is_asked_for || one.matrix.to != nullptr) continue;
            one.matrix.to = memory_.template take<number>(extents<dyn>(one.matrix.size)).data();
            has_more = true;
        }
        if constexpr (device_memory<Backend>)
            if (has_more) distribute();
    }
    // Divides the copies among blocks.
    void distribute() {
        std::vector<detail::copied_matrix<number>> matrices;
        std::vector<detail::copied_part> parts;
        for (auto const& one : all_) {
            if (one.matrix.to == nullptr) continue;
            for (index_t begin = 0; begin < one.matrix.size; begin += detail::copied_part::size)
                parts.push_back({std::ssize(matrices), begin});
            matrices.push_back(one.matrix);
        }
        matrices_ = device_table(memory_, matrices);
        parts_ = device_table(memory_, parts);
        blocks_ = std::ssize(parts);
    }

    template <class Rounding> void copy(context<Backend> const& ctx, Rounding const& rounded) const {
        if constexpr (device_memory<Backend>) {
            if (blocks_ > 0) launch(ctx, blocks_, detail::round_copies_kernel<Rounding>{matrices_, parts_, rounded});
        } else {
            for (auto const& one : all_)
                if (one.matrix.to != nullptr)
                    for_each(ctx, one.matrix.size / detail::copied_at_once, [matrix = one.matrix, rounded](index_t i) {
                        matrix.copy_group(i * detail::copied_at_once, rounded);
                    });
        }
    }

    std::vector<known> all_;
    std::uint64_t groups_ = 0;  // of all matrices
    bool is_sorted_ = false;    // by address
    arena<Backend> memory_{"weights in bf16"};
    // In device memory, for kernels.
    detail::copied_matrix<number> const* matrices_ = nullptr;  // matrices with copies
    detail::copied_part const* parts_ = nullptr;               // one per block
    index_t blocks_ = 0;
};

}  // namespace calm
