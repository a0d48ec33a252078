#pragma once
/// \file
/// Row ids of a table, such as token ids, and whether they were validated, so that this happens once.
/// \shows{tests/tensor/row_ids_test.cpp,they_are_numbered_in_order_of_appearance}

#include <algorithm>
#include <concepts>
#include <span>
#include <type_traits>

#include "calm/tensor/core/copy.hpp"

namespace calm {

/// Ids (n) in the memory of a backend. Operations use validated ids as they are; others they check each time, and then
/// the host waits for a device.
template <class Backend = cpu> class row_ids {
public:
    using view_type = vector_view<row_id const, dyn, Backend>;  ///< the ids

    row_ids() = default;
    /// Unvalidated ids, from anything that converts to a view of them.
    template <std::convertible_to<view_type> Ids> row_ids(Ids const& ids) : ids_(ids) {}
    row_ids(row_id const* ids, extents<dyn> const& n) : ids_(ids, n) {}  ///< unvalidated
    /// Ids that are in 0 .. V - 1, because they were checked or made so.
    static row_ids validated(view_type const& ids, index_t V) {
        row_ids good(ids);
        good.limit_ = V;
        return good;
    }

    [[nodiscard]] view_type const& view() const { return ids_; }      ///< the ids
    [[nodiscard]] row_id const* data() const { return ids_.data(); }  ///< the first id
    [[nodiscard]] index_t size() const { return ids_.size(); }        ///< n
    /// Whether they are validated; true for no ids.
    [[nodiscard]] bool are_validated() const { return limit_ > 0 || size() == 0; }
    /// Rows of the table that they are valid for; 0: not validated.
    [[nodiscard]] index_t limit() const { return limit_; }

    /// `count` ids from index `first` on, validated if these are. Throws errc::usage if there are fewer.
    [[nodiscard]] row_ids part(index_t first, index_t count) const {
        return validated(rows(ids_, first, count), limit_);
    }

private:
    view_type ids_;
    index_t limit_ = 0;
};

/// Ids and their unique values, so that work that depends on an id alone is done once per value.
template <class Backend = cpu> struct unique_ids {
    row_ids<Backend> ids;  ///< (n)
    /// (U), each once, in the order of first appearance; a device may have further ids after them
    row_ids<Backend> unique;
    row_ids<Backend> inverse;  ///< (n), the index of each id in `unique`
};

namespace detail {

[[noreturn]] inline void fail_for_id(char const* what, row_id found, index_t V) {
    throw error(errc::tokenizer, sentence(what, found, " is outside a vocabulary of ", V,
                                          "; was the text encoded with another tokenizer?"));
}

// Checks ids on the host. Throws errc::tokenizer.
inline void check_ids(std::span<row_id const> ids, index_t V) {
    for (row_id const id : ids)
        if (id < 0 || id >= V) fail_for_id("calm: token id ", id, V);
}

// Writes the unique ids to `unique`, in order of appearance, and the index there of each id to `inverse`. Returns
// their count. numbers (V) is workspace: afterwards it has each id's index, or -1.
inline index_t find_unique(std::span<row_id const> ids, std::span<row_id> numbers, row_id* unique, row_id* inverse) {
    std::fill(numbers.begin(), numbers.end(), row_id{-1});
    index_t count = 0;
    for (row_id const id : ids) {
        row_id& number = numbers[static_cast<std::size_t>(id)];
        if (number < 0) {
            unique[count] = id;
            number = static_cast<row_id>(count++);
        }
        *inverse++ = number;
    }
    return count;
}

// Writes ids that do not appear, in order: they have no index in `numbers`.
inline void fill_unused_ids(std::span<row_id const> numbers, std::span<row_id> ids) {
    row_id next = 0;
    for (row_id& id : ids) {
        while (numbers[static_cast<std::size_t>(next)] >= 0) ++next;
        id = next++;
    }
}

template <class T, class Backend> std::span<T> on_this_side(vector_view<T, dyn, Backend> const& x) {
    return {x.data(), static_cast<std::size_t>(x.size())};
}

}  // namespace detail

/// Uploads the ids of one step: the host writes and checks them and finds unique ids, then one copy takes all of them
/// to the backend. They stay in ctx.saved. A backend in host memory reads the host's ids in place, without a copy. A
/// dry run, which has no ids, only takes the memory.
template <class Backend> class id_upload {
public:
    /// For ids of a table of V rows; room: the most ids to upload.
    id_upload(context<Backend>& ctx, index_t V, index_t room) :
        ctx_(ctx), host_(memory_of_host(ctx)), scope_(host_), V_(V),
        there_(ctx.saved.template take<row_id>(extents<dyn>(room))), here_(place_on_host()) {}

    /// The room for n ids, their unique values and the inverse.
    static index_t room_for_unique(index_t n, index_t V) { return 2 * n + std::min(n, V); }

    /// Memory for the next n ids, which the host writes before it calls `checked` or `unique`.
    std::span<row_id> take(index_t n) {
        auto const part = rows(here_, used_, n);
        used_ += n;
        return detail::on_this_side(part);
    }
    /// For ids that the host already has and that outlive their use: a backend in host memory reads them in place.
    /// Throws as `checked` does.
    row_ids<Backend> given(std::span<row_id const> ids) {
        if constexpr (host_memory<Backend>) {
            check(ids);
            return row_ids<Backend>::validated({ids.data(), extents<dyn>(std::ssize(ids))}, V_);
        } else {
            auto const place = take(std::ssize(ids));
            if (!ctx_.is_dry_run()) std::copy(ids.begin(), ids.end(), place.begin());
            return checked(place);
        }
    }
    /// Validates the ids in memory from `take`. Throws errc::tokenizer for an id outside 0 .. V - 1.
    row_ids<Backend> checked(std::span<row_id const> ids) {
        check(ids);
        return there(ids, V_);
    }
    /// As `checked`, but also finds the unique ids. On a device their number is always the maximum, padded with other
    /// ids of the table, each once, so that shapes never depend on data.
    unique_ids<Backend> unique(std::span<row_id const> ids) {
        auto const all = checked(ids);
        auto const unique = take(std::min(all.size(), V_));
        auto const inverse = take(all.size());
        auto count = static_cast<index_t>(unique.size());
        arena_scope const scope(host_);
        auto const numbers = host_.template take<row_id>(extents<dyn>(V_));
        if (!ctx_.is_dry_run()) {
            index_t const found =
                detail::find_unique(ids, detail::on_this_side(numbers), unique.data(), inverse.data());
            if constexpr (host_memory<Backend>)
                count = found;
            else
                detail::fill_unused_ids(detail::on_this_side(numbers), unique.subspan(static_cast<std::size_t>(found)));
        }
        return {all, there(unique.first(static_cast<std::size_t>(count)), V_), there(inverse, count)};
    }
    /// Copies all ids to the backend. Called once, at the end.
    void send() {
        if constexpr (device_memory<Backend>) copy(ctx_, rows(there_, 0, used_), rows(here_, 0, used_));
    }

private:
    using host = std::conditional_t<host_memory<Backend>, Backend, cpu>;  // the backend of host memory

    static arena<host>& memory_of_host(context<Backend>& ctx) {
        if constexpr (host_memory<Backend>)
            return ctx.workspace;
        else
            return ctx.staging;
    }
    void check(std::span<row_id const> ids) const {
        if (!ctx_.is_dry_run()) detail::check_ids(ids, V_);
    }
    vector_view<row_id> place_on_host() {
        if constexpr (host_memory<Backend>)
            return {there_.data(), there_.extents()};
        else
            return host_.template take<row_id>(there_.extents());
    }
    row_ids<Backend> there(std::span<row_id const> ids, index_t below) const {
        index_t const first = ids.data() - here_.data();
        return row_ids<Backend>::validated(rows(there_, first, static_cast<index_t>(ids.size())), below);
    }

    context<Backend>& ctx_;
    arena<host>& host_;  // host memory of the ids during the upload
    arena_scope<host> scope_;
    index_t V_;
    vector_view<row_id, dyn, Backend> there_;
    vector_view<row_id> here_;
    index_t used_ = 0;
};

/// Validates host ids for a table of V rows and brings them to the backend in one copy, without waiting. It takes
/// memory from ctx.saved. A backend in host memory reads the ids in place, so they must outlive their use. Throws
/// errc::tokenizer for an id outside 0 .. V - 1.
template <class Backend> row_ids<Backend> ids_to_device(context<Backend>& ctx, std::span<row_id const> ids, index_t V) {
    id_upload<Backend> upload(ctx, V, host_memory<Backend> ? 0 : std::ssize(ids));
    auto const all = upload.given(ids);
    upload.send();
    return all;
}
/// As ids_to_device, but also finds the unique ids.
template <class Backend>
unique_ids<Backend> unique_ids_to_device(context<Backend>& ctx, std::span<row_id const> ids, index_t V) {
    auto const n = std::ssize(ids);
    id_upload<Backend> upload(ctx, V, n + id_upload<Backend>::room_for_unique(n, V));
    auto const place = upload.take(n);
    if (!ctx.is_dry_run()) std::copy(ids.begin(), ids.end(), place.begin());
    auto const all = upload.unique(place);
    upload.send();
    return all;
}

}  // namespace calm
