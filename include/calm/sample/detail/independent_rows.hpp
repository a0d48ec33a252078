#pragma once
// Rows of products whose bits do not depend on other rows.

#include "calm/tensor/core/context.hpp"

namespace calm::detail {

// While it lives, a host context computes every row of a product in one order (context::independent_rows). Devices have
// no such order: it does nothing there.
template <class Backend> class independent_rows_scope {
public:
    explicit independent_rows_scope(context<Backend>& ctx) : ctx_(ctx) {
        if constexpr (host_memory<Backend>) {
            before_ = ctx_.independent_rows;
            ctx_.independent_rows = true;
        }
    }
    independent_rows_scope(independent_rows_scope const&) = delete;
    independent_rows_scope& operator=(independent_rows_scope const&) = delete;
    ~independent_rows_scope() {
        if constexpr (host_memory<Backend>) ctx_.independent_rows = before_;
    }

private:
    context<Backend>& ctx_;
    bool before_ = false;
};

}  // namespace calm::detail
