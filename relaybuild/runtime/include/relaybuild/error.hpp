/* SPDX-License-Identifier: Apache-2.0
 *
 * What went wrong, for C++17: as an exception, as a value where a program has none, or as a std::error_code. It knows
 * the numbers of errors, and nothing of what fails. */
#ifndef RELAYBUILD_ERROR_HPP_
#define RELAYBUILD_ERROR_HPP_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include "relaybuild/model.h"

namespace relaybuild {

/* The kinds of errors; RbStatus says what each stands for. */
enum class Errc : int32_t {
  ok = RB_OK,
  invalid_argument = RB_ERROR_INVALID_ARGUMENT,
  invalid_tensor = RB_ERROR_INVALID_TENSOR,
  out_of_memory = RB_ERROR_OUT_OF_MEMORY,
  busy = RB_ERROR_BUSY,
  unsupported_cpu = RB_ERROR_UNSUPPORTED_CPU,
  thread = RB_ERROR_THREAD,
  internal = RB_ERROR_INTERNAL,
  call_depth = RB_ERROR_CALL_DEPTH,
  region = RB_ERROR_REGION
};

namespace internal {

/* The kinds of errors for std::error_code, which has no place for the sentence. */
class ErrorCategory final : public std::error_category {
public:
  const char *name() const noexcept override {
    return "relaybuild";
  }

  std::string message(int code) const override {
    static constexpr const char *kTexts[] = {"success",
                                             "invalid argument",
                                             "a tensor that does not fit",
                                             "out of memory",
                                             "another thread is running this instance",
                                             "the processor lacks what the model was compiled for",
                                             "a thread could not be started",
                                             "the library is broken",
                                             "calls are nested too deeply",
                                             "a function of another backend has failed"};
    return code >= 0 && code < static_cast<int>(sizeof kTexts / sizeof kTexts[0]) ? kTexts[code] : "unknown error";
  }

  std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<Errc>(code)) {
    case Errc::invalid_argument:
    case Errc::invalid_tensor:
      return std::errc::invalid_argument;
    case Errc::out_of_memory:
      return std::errc::not_enough_memory;
    case Errc::busy:
      return std::errc::device_or_resource_busy;
    case Errc::unsupported_cpu:
      return std::errc::not_supported;
    case Errc::thread:
      return std::errc::resource_unavailable_try_again;
    default:
      return std::error_condition(code, *this);
    }
  }
};

} // namespace internal

inline const std::error_category &error_category() noexcept {
  static const internal::ErrorCategory category;
  return category;
}

inline std::error_code make_error_code(Errc code) noexcept {
  return std::error_code(static_cast<int>(code), error_category());
}

/* What was found, what was expected, and what to do, in one sentence. */
class Error : public std::runtime_error {
public:
  explicit Error(const std::string &message, Errc code = Errc::invalid_argument)
      : std::runtime_error(message), code_(code) {}

  Errc code() const noexcept {
    return code_;
  }

private:
  Errc code_;
};

/* How a call went. Functions whose names begin with Try return one; the others throw Error instead. In a program that
 * is compiled without exceptions these print the sentence to stderr and end it. */
class [[nodiscard]] Status {
public:
  /* All went well. */
  Status() = default;
  Status(Errc code, std::string message) noexcept : code_(code), message_(std::move(message)) {}

  /* There is no memory, not even for a sentence. */
  static Status OutOfMemory() noexcept {
    return Status(Errc::out_of_memory, std::string());
  }

  bool ok() const noexcept {
    return code_ == Errc::ok;
  }
  Errc code() const noexcept {
    return code_;
  }
  /* The code alone, for programs that tell of all errors so; the sentence stays here. */
  std::error_code error_code() const noexcept {
    return make_error_code(code_);
  }
  const char *message() const noexcept {
    return code_ == Errc::out_of_memory && message_.empty() ? "out of memory" : message_.c_str();
  }

  void OrThrow() const {
    if (ok()) {
      return;
    }
#if defined(__cpp_exceptions)
    throw Error(message(), code_);
#else
    std::fprintf(stderr, "relaybuild: %s\n", message());
    std::abort();
#endif
  }

private:
  Errc code_ = Errc::ok;
  std::string message_;
};

/* A value, or why there is none. */
template <class T> class [[nodiscard]] Result {
public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const noexcept {
    return value_.has_value();
  }
  explicit operator bool() const noexcept {
    return ok();
  }
  const Status &status() const noexcept {
    return status_;
  }

  /* The value; throws Error where there is none. */
  T &value() & {
    status_.OrThrow();
    return *value_;
  }
  T value() && {
    status_.OrThrow();
    return std::move(*value_);
  }

  /* The value, which has to be there. */
  T &operator*() noexcept {
    return *value_;
  }
  T *operator->() noexcept {
    return &*value_;
  }

private:
  Status status_;
  std::optional<T> value_;
};

namespace internal {

/* What `body` returns, or what stands for the lack of memory that ended it. */
template <class Body> auto WithMemory(Body body) noexcept -> decltype(body()) {
#if defined(__cpp_exceptions)
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return Status::OutOfMemory();
  }
#else
  return body();
#endif
}

} // namespace internal
} // namespace relaybuild

template <> struct std::is_error_code_enum<relaybuild::Errc> : std::true_type {};

#endif
