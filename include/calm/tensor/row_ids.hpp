#pragma once
// Ids of rows of a table, such as token ids, and what is known of them: who checked them once need not do it again.

#include <algorithm>
#include <concepts>
#include <span>
#include <type_traits>

#include "calm/tensor/copy.hpp"

namespace calm {

// Ids (n) where an executor reads them. Where they are known to be good, verbs take them as they are. Others are
// checked by every verb that is given them, and to know the answer the host waits for a device.
template <class Backend = cpu> class row_ids {
public:
    using view_type = vector_view<row_id const, dyn, Backend>;  // where they are

    row_ids() = default;
    // Ids of which nothing is known: whatever goes where a view of them is asked for.
    template <std::convertible_to<view_type> Ids> row_ids(Ids const& ids) : ids_(ids) {}
    row_ids(row_id const* ids, extents<dyn> const& n) : ids_(ids, n) {}  // the same
    // Ids that are in 0 .. V - 1: because they were checked, or because they were made so.
    static row_ids known(view_type const& ids, index_t V) {
        row_ids good(ids);
        good.below_ = V;
        return good;
    }

    [[nodiscard]] view_type const& view() const { return ids_; }                // where they are
    [[nodiscard]] row_id const* data() const { return ids_.data(); }            // the first of them
    [[nodiscard]] index_t size() const { return ids_.size(); }                  // n
    [[nodiscard]] bool are_known() const { return below_ > 0 || size() == 0; }  // to be good for some table
    [[nodiscard]] index_t below() const { return below_; }                      // rows of that table

    // The same of `count` of them from the first-th on. Throws errc::usage where they are not all there.
    [[nodiscard]] row_ids part(index_t first, index_t count) const { return known(rows(ids_, first, count), below_); }

private:
    view_type ids_;
    index_t below_ = 0;
};

// Ids and the distinct ones among them: what depends on an id alone is done once for each.
template <class Backend = cpu> struct numbered_ids {
    row_ids<Backend> ids;       // (n)
    row_ids<Backend> distinct;  // (U), each once, in the order of their first appearance; on a device others follow
    row_ids<Backend> places;    // (n), which of the distinct ones stands there
};

namespace detail {

[[noreturn]] inline void fail_for_id(char const* what, row_id found, index_t V) {
    throw error(errc::tokenizer, sentence(what, found, " is outside a vocabulary of ", V,
                                          "; was the text encoded with another tokenizer?"));
}

// Of ids on the host.
inline void check_ids(std::span<row_id const> ids, index_t V) {
    for (row_id const id : ids)
        if (id < 0 || id >= V) fail_for_id("calm: token id ", id, V);
}

// In order of appearance into distinct; the number of ids[i] among them into places[i]. numbers (V) is scratch.
inline index_t number_ids(std::span<row_id const> ids, std::span<row_id> numbers, row_id* distinct, row_id* places) {
    std::fill(numbers.begin(), numbers.end(), row_id{-1});
    index_t count = 0;
    for (row_id const id : ids) {
        row_id& number = numbers[static_cast<std::size_t>(id)];
        if (number < 0) {
            distinct[count] = id;
            number = static_cast<row_id>(count++);
        }
        *places++ = number;
    }
    return count;
}

// Ids that do not appear, in order: those without a number.
inline void put_unnumbered(std::span<row_id const> numbers, std::span<row_id> ids) {
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

// Ids of a step on their way to an executor: the host writes, checks and numbers them, then all of them go there in one
// copy. What it takes of ctx.saved is the executor's and stays; where the executor reads the host's memory, it reads
// what the host wrote, and nothing is copied. In a rehearsal, which knows no ids, it takes memory alone.
template <class Backend> class id_upload {
public:
    // Of ids of a table of V rows, with room for so many.
    id_upload(context<Backend>& ctx, index_t V, index_t room) :
        ctx_(ctx), host_(memory_of_host(ctx)), scope_(host_), V_(V),
        there_(ctx.saved.template take<row_id>(extents<dyn>(room))), here_(place_on_host()) {}

    // The room that numbered ids take.
    static index_t room_to_number(index_t n, index_t V) { return 2 * n + std::min(n, V); }

    // Place for the next n ids, for the host to write before it calls `checked` or `numbered`.
    std::span<row_id> take(index_t n) {
        auto const part = rows(here_, used_, n);
        used_ += n;
        return detail::on_this_side(part);
    }
    // Ids that the host has, which outlive what reads them: one that reads the host's memory reads them there. Throws
    // as `checked` does.
    row_ids<Backend> given(std::span<row_id const> ids) {
        if constexpr (host_memory<Backend>) {
            check(ids);
            return row_ids<Backend>::known({ids.data(), extents<dyn>(std::ssize(ids))}, V_);
        } else {
            auto const place = take(std::ssize(ids));
            if (!ctx_.rehearsing()) std::copy(ids.begin(), ids.end(), place.begin());
            return checked(place);
        }
    }
    // The ids of such a place. Throws errc::tokenizer for one outside 0 .. V - 1.
    row_ids<Backend> checked(std::span<row_id const> ids) {
        check(ids);
        return there(ids, V_);
    }
    // The same with their numbers. On a device there is room for as many distinct ones as there can be, and where there
    // are fewer, others of the table follow, each once: shapes follow from no id.
    numbered_ids<Backend> numbered(std::span<row_id const> ids) {
        auto const all = checked(ids);
        auto const distinct = take(std::min(all.size(), V_));
        auto const places = take(all.size());
        auto count = static_cast<index_t>(distinct.size());
        arena_scope const scope(host_);
        auto const numbers = host_.template take<row_id>(extents<dyn>(V_));
        if (!ctx_.rehearsing()) {
            index_t const found =
                detail::number_ids(ids, detail::on_this_side(numbers), distinct.data(), places.data());
            if constexpr (host_memory<Backend>)
                count = found;
            else
                detail::put_unnumbered(detail::on_this_side(numbers),
                                       distinct.subspan(static_cast<std::size_t>(found)));
        }
        return {all, there(distinct.first(static_cast<std::size_t>(count)), V_), there(places, count)};
    }
    // Brings them. Called once, behind the last.
    void send() {
        if constexpr (device_memory<Backend>) copy(ctx_, rows(there_, 0, used_), rows(here_, 0, used_));
    }

private:
    using host = std::conditional_t<host_memory<Backend>, Backend, cpu>;  // who else has the host's memory

    static arena<host>& memory_of_host(context<Backend>& ctx) {
        if constexpr (host_memory<Backend>)
            return ctx.scratch;
        else
            return ctx.staging;
    }
    void check(std::span<row_id const> ids) const {
        if (!ctx_.rehearsing()) detail::check_ids(ids, V_);
    }
    vector_view<row_id> place_on_host() {
        if constexpr (host_memory<Backend>)
            return {there_.data(), there_.extents()};
        else
            return host_.template take<row_id>(there_.extents());
    }
    row_ids<Backend> there(std::span<row_id const> ids, index_t below) const {
        index_t const first = ids.data() - here_.data();
        return row_ids<Backend>::known(rows(there_, first, static_cast<index_t>(ids.size())), below);
    }

    context<Backend>& ctx_;
    arena<host>& host_;  // memory of the host while ids are on their way
    arena_scope<host> scope_;
    index_t V_;
    vector_view<row_id, dyn, Backend> there_;
    vector_view<row_id> here_;
    index_t used_ = 0;
};

// The host's ids of a table of V rows, which it checks and brings in one copy: nothing waits. What it takes is of
// ctx.saved; an executor that reads the host's memory reads them where they are, as long as they last. Throws
// errc::tokenizer for one outside 0 .. V - 1.
template <class Backend> row_ids<Backend> bring_ids(context<Backend>& ctx, std::span<row_id const> ids, index_t V) {
    id_upload<Backend> upload(ctx, V, host_memory<Backend> ? 0 : std::ssize(ids));
    auto const all = upload.given(ids);
    upload.send();
    return all;
}
// The same with their numbers.
template <class Backend>
numbered_ids<Backend> bring_numbered(context<Backend>& ctx, std::span<row_id const> ids, index_t V) {
    auto const n = std::ssize(ids);
    id_upload<Backend> upload(ctx, V, n + id_upload<Backend>::room_to_number(n, V));
    auto const place = upload.take(n);
    if (!ctx.rehearsing()) std::copy(ids.begin(), ids.end(), place.begin());
    auto const all = upload.numbered(place);
    upload.send();
    return all;
}

}  // namespace calm
