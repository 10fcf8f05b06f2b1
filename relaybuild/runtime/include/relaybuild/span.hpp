/* SPDX-License-Identifier: Apache-2.0
 *
 * Views of memory that is somebody else's, for C++17: std::span for those who have none yet. It knows no tensors. */
#ifndef RELAYBUILD_SPAN_HPP_
#define RELAYBUILD_SPAN_HPP_

#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>
#if __cplusplus >= 202002L
#include <ranges>
#endif

namespace relaybuild {

template <class T> class Span;

namespace internal {

template <class C> struct IsSpan : std::false_type {};
template <class T> struct IsSpan<Span<T>> : std::true_type {};

/* What std::data() of a container points to; no type where it has none, as std::vector<bool>. */
template <class C> using ElementOf = std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>;

template <class C, class = void> struct HasElements : std::false_type {};
template <class C>
struct HasElements<C, std::void_t<ElementOf<C>, decltype(std::size(std::declval<C &>()))>>
    : std::bool_constant<!std::is_void_v<ElementOf<C>>> {};

template <class C, class T, class = void> struct IsListOf : std::false_type {};
template <class C, class T>
struct IsListOf<C, T, std::enable_if_t<HasElements<C>::value>> : std::is_convertible<ElementOf<C> (*)[], T (*)[]> {};

} // namespace internal

/* Elements one behind the other in memory. Made of whatever has them: arrays, std::vector, std::array, std::span. */
template <class T> class Span {
public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using pointer = T *;
  using reference = T &;
  using iterator = T *;

  constexpr Span() noexcept = default;
  constexpr Span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <class C, std::enable_if_t<internal::IsListOf<std::remove_reference_t<C>, T>::value &&
                                          !std::is_same_v<std::remove_cv_t<std::remove_reference_t<C>>, Span> &&
                                          (std::is_lvalue_reference_v<C> || std::is_const_v<T> ||
                                           internal::IsSpan<std::remove_reference_t<C>>::value),
                                      int> = 0>
  constexpr Span(C &&elements) noexcept : data_(std::data(elements)), size_(std::size(elements)) {}

  constexpr T *data() const noexcept {
    return data_;
  }
  constexpr std::size_t size() const noexcept {
    return size_;
  }
  constexpr std::size_t size_bytes() const noexcept {
    return size_ * sizeof(T);
  }
  [[nodiscard]] constexpr bool empty() const noexcept {
    return size_ == 0;
  }
  constexpr T &operator[](std::size_t index) const noexcept {
    return data_[index];
  }
  constexpr T &front() const noexcept {
    return data_[0];
  }
  constexpr T &back() const noexcept {
    return data_[size_ - 1];
  }
  constexpr T *begin() const noexcept {
    return data_;
  }
  constexpr T *end() const noexcept {
    return data_ + size_;
  }
  constexpr Span first(std::size_t count) const noexcept {
    return Span(data_, count);
  }
  constexpr Span last(std::size_t count) const noexcept {
    return Span(data_ + size_ - count, count);
  }
  constexpr Span subspan(std::size_t offset) const noexcept {
    return last(size_ - offset);
  }
  constexpr Span subspan(std::size_t offset, std::size_t count) const noexcept {
    return Span(data_ + offset, count);
  }

private:
  T *data_ = nullptr;
  std::size_t size_ = 0;
};

template <class C> Span(C &) -> Span<internal::ElementOf<C>>;

} // namespace relaybuild

#if defined(__cpp_lib_ranges)
template <class T> inline constexpr bool std::ranges::enable_borrowed_range<relaybuild::Span<T>> = true;
template <class T> inline constexpr bool std::ranges::enable_view<relaybuild::Span<T>> = true;
#endif

#endif
