/* Vectors of RB_LANES floats for generated kernels: 16, 8 or 4 by vector extensions, or 1, which is plain C11.
 *
 * A kernel defines RB_LANES before it includes this file. Knows nothing of tensors. */
#ifndef RELAYBUILD_VECTOR_H_
#define RELAYBUILD_VECTOR_H_

#include <stddef.h>
#include <stdint.h>

/* What kernels use of <math.h> and <string.h>. gcc and clang know these functions, declared or not; to read the headers
 * would be a quarter of the time that a small kernel takes to compile. */
#if defined(__GNUC__)
#define RB_LIBM(name)                                                                                                  \
  float name##f(float);                                                                                                \
  double name(double)
#define RB_LIBM2(name)                                                                                                 \
  float name##f(float, float);                                                                                         \
  double name(double, double)
RB_LIBM(fabs);
RB_LIBM(sqrt);
RB_LIBM(floor);
RB_LIBM(ceil);
RB_LIBM(trunc);
RB_LIBM(nearbyint);
RB_LIBM(exp);
RB_LIBM(log);
RB_LIBM(erf);
RB_LIBM(sin);
RB_LIBM(cos);
RB_LIBM(tan);
RB_LIBM(asin);
RB_LIBM(acos);
RB_LIBM(atan);
RB_LIBM(sinh);
RB_LIBM(cosh);
RB_LIBM(tanh);
RB_LIBM(asinh);
RB_LIBM(acosh);
RB_LIBM(atanh);
RB_LIBM2(pow);
RB_LIBM2(fmod);
void *memcpy(void *restrict, const void *restrict, size_t);
void *memset(void *, int, size_t);
#ifndef INFINITY
#define INFINITY __builtin_inff()
#endif
#ifndef NAN
#define NAN __builtin_nanf("")
#endif
#ifndef isnan
#define isnan(x) __builtin_isnan(x)
#endif
#ifndef isinf
#define isinf(x) __builtin_isinf(x)
#endif
#else
#include <math.h>
#include <string.h>
#endif

/* With 16 registers a tile leaves none for what the next iterations of a loop load again: gcc would spill it. */
#if defined(__x86_64__) && !defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-predictive-commoning")
#endif

#if defined(__GNUC__)
#define RB_INLINE static inline __attribute__((always_inline, unused))
#else
#define RB_INLINE static inline
#endif

#if defined(__GNUC__)
#define RB_PREFETCH(address) __builtin_prefetch(address)
#else
#define RB_PREFETCH(address) ((void)(address))
#endif

/* An index that is computed at run time. gcc must not see what of: where that is a comparison, gcc 12 takes the
 * comparison for the index of elements it gathers, and true for -1. */
RB_INLINE ptrdiff_t rb_index(ptrdiff_t at) {
#if defined(__GNUC__) && !defined(__clang__)
  __asm__("" : "+r"(at));
#endif
  return at;
}

#if RB_LANES > 1

typedef float rb_v __attribute__((vector_size(4 * RB_LANES)));
typedef int32_t rb_m __attribute__((vector_size(4 * RB_LANES)));
typedef float rb_vu __attribute__((vector_size(4 * RB_LANES), aligned(4), may_alias));

RB_INLINE rb_v rb_load(const float *p) {
  return *(const rb_vu *)(const void *)p;
}
RB_INLINE void rb_store(float *p, rb_v v) {
  *(rb_vu *)(void *)p = v;
}
RB_INLINE rb_v rb_splat(float x) {
  return x - (rb_v){0};
}
RB_INLINE rb_m rb_bits(rb_v v) {
  return (rb_m)v;
}
RB_INLINE rb_v rb_float_of(rb_m m) {
  return __builtin_convertvector(m, rb_v);
}
RB_INLINE rb_v rb_of_bits(rb_m m) {
  return (rb_v)m;
}
RB_INLINE rb_m rb_splat_mask(int condition) {
  return (rb_m){0} - (condition ? 1 : 0);
}
RB_INLINE rb_v rb_select(rb_m m, rb_v a, rb_v b) {
  return (rb_v)((m & (rb_m)a) | (~m & (rb_m)b));
}
RB_INLINE rb_v rb_and(rb_v v, rb_m m) {
  return (rb_v)((rb_m)v & m);
}
#define RB_EACH_LANE(result, expression)                                                                               \
  do {                                                                                                                 \
    for (int lane = 0; lane < RB_LANES; ++lane) {                                                                      \
      (result)[lane] = (expression);                                                                                   \
    }                                                                                                                  \
  } while (0)
#define RB_LANE(v, lane) ((v)[lane])

#if RB_LANES == 16
#define RB_LANE_NUMBERS ((rb_m){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#elif RB_LANES == 8
#define RB_LANE_NUMBERS ((rb_m){0, 1, 2, 3, 4, 5, 6, 7})
#else
#define RB_LANE_NUMBERS ((rb_m){0, 1, 2, 3})
#endif
/* Lane i of the result is lane i ^ distance. */
RB_INLINE rb_v rb_turn(rb_v v, int distance) {
#if defined(__clang__)
  rb_v result = v;
  RB_EACH_LANE(result, v[lane ^ distance]);
  return result;
#else
  return __builtin_shuffle(v, RB_LANE_NUMBERS ^ distance);
#endif
}

#else

typedef float rb_v;
typedef int32_t rb_m;

RB_INLINE rb_v rb_load(const float *p) {
  return *p;
}
RB_INLINE void rb_store(float *p, rb_v v) {
  *p = v;
}
RB_INLINE rb_v rb_splat(float x) {
  return x;
}
RB_INLINE rb_m rb_bits(rb_v v) {
  rb_m m;
  memcpy(&m, &v, sizeof m);
  return m;
}
RB_INLINE rb_v rb_float_of(rb_m m) {
  return (float)m;
}
RB_INLINE rb_v rb_of_bits(rb_m m) {
  rb_v v;
  memcpy(&v, &m, sizeof v);
  return v;
}
RB_INLINE rb_m rb_splat_mask(int condition) {
  return condition ? -1 : 0;
}
RB_INLINE rb_v rb_select(rb_m m, rb_v a, rb_v b) {
  return m ? a : b;
}
RB_INLINE rb_v rb_and(rb_v v, rb_m m) {
  return m ? v : 0.0f;
}
#define RB_EACH_LANE(result, expression)                                                                               \
  do {                                                                                                                 \
    for (int lane = 0; lane < 1; ++lane) {                                                                             \
      (result) = (expression);                                                                                         \
    }                                                                                                                  \
  } while (0)
#define RB_LANE(v, lane) (v)

RB_INLINE rb_v rb_turn(rb_v v, int distance) {
  (void)distance;
  return v;
}

#endif

/* A comparison of vectors is a mask of all ones or zeros; of scalars (RB_LANES 1) it is 0 or 1, made a mask here. */
#if RB_LANES > 1
#define RB_COMPARE(a, op, b) ((a)op(b))
#define RB_NOT_NUMBER(v) ((v) != (v))
#else
#define RB_COMPARE(a, op, b) (((a)op(b)) ? -1 : 0)
#define RB_NOT_NUMBER(v) (((v) != (v)) ? -1 : 0)
#endif

/* a > b ? a : b and a < b ? a : b in each lane, so `b` where either is NaN: one instruction of x86. */
#if RB_LANES == 16 && defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#define RB_LARGER(a, b) __builtin_ia32_maxps512_mask(a, b, a, -1, 4)
#define RB_SMALLER(a, b) __builtin_ia32_minps512_mask(a, b, a, -1, 4)
#elif RB_LANES == 8 && defined(__AVX__)
#define RB_LARGER(a, b) __builtin_ia32_maxps256(a, b)
#define RB_SMALLER(a, b) __builtin_ia32_minps256(a, b)
#elif RB_LANES == 4 && defined(__SSE__)
#define RB_LARGER(a, b) __builtin_ia32_maxps(a, b)
#define RB_SMALLER(a, b) __builtin_ia32_minps(a, b)
#else
#define RB_LARGER(a, b) rb_select(RB_COMPARE(a, >, b), a, b)
#define RB_SMALLER(a, b) rb_select(RB_COMPARE(a, <, b), a, b)
#endif
RB_INLINE rb_v rb_larger(rb_v a, rb_v b) {
  return RB_LARGER(a, b);
}
RB_INLINE rb_v rb_smaller(rb_v a, rb_v b) {
  return RB_SMALLER(a, b);
}

/* Maximum and minimum return NaN where either argument is one. */
RB_INLINE rb_v rb_max(rb_v a, rb_v b) {
  return rb_select(RB_NOT_NUMBER(a), a, rb_larger(a, b));
}
RB_INLINE rb_v rb_min(rb_v a, rb_v b) {
  return rb_select(RB_NOT_NUMBER(a), a, rb_smaller(a, b));
}
/* The same where `bound` is a number: NaN in `v` stays. */
RB_INLINE rb_v rb_at_least(rb_v v, rb_v bound) {
  return rb_select(RB_COMPARE(v, <, bound), bound, v);
}
RB_INLINE rb_v rb_at_most(rb_v v, rb_v bound) {
  return rb_select(RB_COMPARE(v, >, bound), bound, v);
}
RB_INLINE rb_v rb_relu(rb_v v) {
  return rb_and(v, ~RB_COMPARE(v, <, rb_splat(0.0f)));
}
RB_INLINE rb_v rb_abs(rb_v v) {
  return rb_of_bits(rb_bits(v) & 0x7fffffff);
}

/* All lanes combined, in a tree. */
#define RB_FOLD_LANES(v, combined)                                                                                     \
  for (int distance = RB_LANES / 2; distance > 0; distance /= 2) {                                                     \
    const rb_v turned = rb_turn(v, distance);                                                                          \
    (v) = (combined);                                                                                                  \
  }                                                                                                                    \
  return RB_LANE(v, 0)
RB_INLINE float rb_sum_lanes(rb_v v) {
  RB_FOLD_LANES(v, v + turned);
}
RB_INLINE float rb_prod_lanes(rb_v v) {
  RB_FOLD_LANES(v, v * turned);
}
RB_INLINE float rb_max_lanes(rb_v v) {
  RB_FOLD_LANES(v, rb_max(v, turned));
}
RB_INLINE float rb_min_lanes(rb_v v) {
  RB_FOLD_LANES(v, rb_min(v, turned));
}

#define RB_LANEWISE(name, function)                                                                                    \
  RB_INLINE rb_v name(rb_v v) {                                                                                        \
    rb_v result = v;                                                                                                   \
    RB_EACH_LANE(result, function(RB_LANE(v, lane)));                                                                  \
    return result;                                                                                                     \
  }
RB_LANEWISE(rb_sqrt, sqrtf)
RB_LANEWISE(rb_floor, floorf)
RB_LANEWISE(rb_ceil, ceilf)
RB_LANEWISE(rb_round, nearbyintf)
RB_LANEWISE(rb_trunc, truncf)

RB_LANEWISE(rb_sin, sinf)
RB_LANEWISE(rb_cos, cosf)
RB_LANEWISE(rb_tan, tanf)
RB_LANEWISE(rb_asin, asinf)
RB_LANEWISE(rb_acos, acosf)
RB_LANEWISE(rb_atan, atanf)
RB_LANEWISE(rb_sinh, sinhf)
RB_LANEWISE(rb_cosh, coshf)
RB_LANEWISE(rb_asinh, asinhf)
RB_LANEWISE(rb_acosh, acoshf)
RB_LANEWISE(rb_atanh, atanhf)

#define RB_LANEWISE2(name, function)                                                                                   \
  RB_INLINE rb_v name(rb_v a, rb_v b) {                                                                                \
    rb_v result = a;                                                                                                   \
    RB_EACH_LANE(result, function(RB_LANE(a, lane), RB_LANE(b, lane)));                                                \
    return result;                                                                                                     \
  }
RB_LANEWISE2(rb_pow, powf)
RB_LANEWISE2(rb_mod, fmodf)
RB_INLINE rb_v rb_floordiv(rb_v a, rb_v b) {
  return rb_floor(a / b);
}
RB_INLINE rb_v rb_floormod(rb_v a, rb_v b) {
  rb_v rest = rb_mod(a, b), zero = rb_splat(0.0f);
  rb_m adjust = RB_COMPARE(rest, !=, zero) & (RB_COMPARE(rest, <, zero) ^ RB_COMPARE(b, <, zero));
  return rest + rb_and(b, adjust);
}
RB_INLINE rb_m rb_isnan(rb_v v) {
  return RB_NOT_NUMBER(v);
}
RB_INLINE rb_m rb_isinf(rb_v v) {
  return RB_COMPARE(rb_abs(v), ==, rb_splat(INFINITY));
}

/* e^r for |r| <= ln 2 / 2: a polynomial of degree 6 with the least relative error, 3.1e-9, of those that begin with
 * 1 + r. Pairs of its terms stand side by side, since the time from r to the result is what limits a processor that
 * works on a few vectors at once. */
RB_INLINE rb_v rb_exp_near(rb_v r) {
  rb_v square = r * r;
  rb_v second = r * 1.66665211e-1f + 4.9999993e-1f;
  rb_v fourth = r * 8.36871378e-3f + 4.16683890e-2f;
  rb_v rest = (square * 1.38146302e-3f + fourth) * square + second;
  return (rest * square + r) + 1.0f;
}

/* e^x within 2 ulp: x = k ln 2 + r, |r| <= ln 2 / 2. Overflows to infinity
 * above 88.72, to 0 below -104 through two scalings, keeps NaN. */
RB_INLINE rb_v rb_exp(rb_v x) {
  const rb_v high = rb_splat(89.0f), low = rb_splat(-104.0f);
  rb_v clamped = rb_larger(low, rb_smaller(high, x));
  rb_v scaled = clamped * 1.44269504088896341f;
  rb_v whole = (scaled + 12582912.0f) - 12582912.0f;
  rb_v r = (clamped - whole * 0.693359375f) - whole * -2.12194440e-4f;
  rb_v p = rb_exp_near(r);
  whole = rb_select(RB_NOT_NUMBER(x), rb_splat(0.0f), whole);
#if RB_LANES > 1
  rb_m k = __builtin_convertvector(whole, rb_m);
#else
  rb_m k = (rb_m)whole;
#endif
  rb_m first = k >> 1, second = k - first;
  return p * rb_of_bits((first + 127) << 23) * rb_of_bits((second + 127) << 23);
}

/* e^x for x <= 88 or NaN, as above, but 0 below -87.7. The sum with 3 * 2^22 rounds to a whole number, and that with
 * 127 more leaves the exponent's bits lowest: these are 0 where x is -88 or less. */
RB_INLINE rb_v rb_exp_falling(rb_v x) {
#if RB_LANES > 1
  rb_v clamped = rb_larger(rb_splat(-88.0f), x);
  rb_v shifted = clamped * 1.44269504088896341f + 12583039.0f;
  rb_v whole = shifted - 12583039.0f;
  rb_v r = (clamped - whole * 0.693359375f) - whole * -2.12194440e-4f;
  return rb_exp_near(r) * rb_of_bits(rb_bits(shifted) << 23);
#else
  return expf(x);
#endif
}

/* Natural logarithm within 2 ulp: x = 2^k m, m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s) with s = (m-1)/(m+1). */
RB_INLINE rb_v rb_log(rb_v x) {
  rb_m tiny = RB_COMPARE(x, <, rb_splat(1.17549435e-38f));
  rb_v normal = rb_select(tiny, x * 8388608.0f, x);
  rb_m bits = rb_bits(normal);
  rb_m k = ((bits - 0x3f3504f3) >> 23);
  rb_v m = rb_of_bits(bits - (rb_m)((uint32_t)0 + (k << 23)));
  rb_v e = rb_float_of(k) - rb_select(tiny, rb_splat(23.0f), rb_splat(0.0f));
  rb_v f = m - 1.0f;
  rb_v s = f / (m + 1.0f), z = s * s;
  rb_v p = rb_splat(0.2222222222f);
  p = p * z + 0.2857142857f;
  p = p * z + 0.4f;
  p = p * z + 0.6666666667f;
  rb_v result = e * 0.693359375f + (f - (s * (f - p * z) + e * 2.12194440e-4f));
  result = rb_select(RB_COMPARE(x, ==, rb_splat(0.0f)), rb_splat(-INFINITY), result);
  result = rb_select(RB_COMPARE(x, <, rb_splat(0.0f)), rb_splat(NAN), result);
  result = rb_select(RB_COMPARE(x, ==, rb_splat(INFINITY)), x, result);
  return rb_select(RB_NOT_NUMBER(x), x, result);
}

/* 1 / (1 + e^-x), whose exponential is kept from overflowing: 0 below -88. */
RB_INLINE rb_v rb_sigmoid(rb_v x) {
  rb_v result = 1.0f / (1.0f + rb_exp_falling(rb_smaller(rb_splat(88.0f), -x)));
  return rb_select(RB_COMPARE(x, <, rb_splat(-88.0f)), rb_splat(0.0f), result);
}

/* Between -high and high, and NaN. */
RB_INLINE rb_v rb_within(rb_v x, float high) {
  return rb_larger(rb_splat(-high), rb_smaller(rb_splat(high), x));
}

/* x P(x^2) / Q(x^2) with P of degree 6 and Q of degree 3: of all such quotients the one with the least relative error
 * up to 9.01 (7e-9), where tanh is 1 in single precision; with roundings 5 ulp. */
RB_INLINE rb_v rb_tanh(rb_v x) {
  rb_v a = rb_within(x, 9.01f), z = a * a;
  rb_v p = rb_splat(-8.462335514e-14f);
  rb_v q = rb_splat(2.545448078e-4f);
  p = p * z + 5.267853168e-11f;
  p = p * z - 2.020458467e-8f;
  p = p * z + 1.114928000e-5f;
  q = q * z + 2.449327894e-2f;
  p = p * z + 3.103478579e-3f;
  q = q * z + 4.641691148e-1f;
  p = p * z + 1.308358312e-1f;
  q = q * z + 1.0f;
  p = p * z + 1.0f;
  return rb_within(a * p / q, 1.0f);
}

/* The error function within 4e-7: x P(x^2) / Q(x^2) with P and Q of degree 5, of all such quotients the one with the
 * least relative error up to 3.9192 (2e-8), where it is 1 in single precision. */
RB_INLINE rb_v rb_erf(rb_v x) {
  rb_v a = rb_within(x, 3.9192f), z = a * a;
  rb_v p = rb_splat(2.050737749e-6f);
  rb_v q = rb_splat(3.809880582e-5f);
  p = p * z + 2.848899749e-4f;
  q = q * z + 1.162331086e-3f;
  p = p * z + 3.764534369e-3f;
  q = q * z + 1.496703364e-2f;
  p = p * z + 5.274551734e-2f;
  q = q * z + 1.140975803e-1f;
  p = p * z + 1.903770715e-1f;
  q = q * z + 5.020500422e-1f;
  p = p * z + 1.128379107f;
  q = q * z + 1.0f;
  return rb_within(a * p / q, 1.0f);
}

RB_INLINE rb_v rb_neg(rb_v v) {
  return -v;
}
RB_INLINE rb_v rb_rsqrt(rb_v v) {
  return 1.0f / rb_sqrt(v);
}
RB_INLINE rb_v rb_sign(rb_v v) {
  rb_v unit = rb_select(RB_COMPARE(v, >, rb_splat(0.0f)), rb_splat(1.0f), rb_splat(0.0f));
  unit = rb_select(RB_COMPARE(v, <, rb_splat(0.0f)), rb_splat(-1.0f), unit);
  return rb_select(RB_NOT_NUMBER(v), v, unit);
}

/* The sums of the lanes of each of RB_LANES vectors, as the lanes of one vector: halves are folded until one is left.
 */
#if RB_LANES == 1
RB_INLINE rb_v rb_sum_each(const rb_v *v) {
  return v[0];
}
#else
#if defined(__clang__)
#define RB_PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define RB_PICK(a, b, ...) __builtin_shuffle(a, b, (rb_m){__VA_ARGS__})
#endif
#if RB_LANES == 16
RB_INLINE rb_v rb_fold0(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
         RB_PICK(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}
RB_INLINE rb_v rb_fold1(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
         RB_PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
RB_INLINE rb_v rb_fold2(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
         RB_PICK(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
}
RB_INLINE rb_v rb_fold3(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
         RB_PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
#elif RB_LANES == 8
RB_INLINE rb_v rb_fold0(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + RB_PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
RB_INLINE rb_v rb_fold1(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 4, 5, 8, 9, 12, 13) + RB_PICK(a, b, 2, 3, 6, 7, 10, 11, 14, 15);
}
RB_INLINE rb_v rb_fold2(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14) + RB_PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}
#elif RB_LANES == 4
RB_INLINE rb_v rb_fold0(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 4, 5) + RB_PICK(a, b, 2, 3, 6, 7);
}
RB_INLINE rb_v rb_fold1(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 2, 4, 6) + RB_PICK(a, b, 1, 3, 5, 7);
}
#endif
RB_INLINE rb_v rb_sum_each(const rb_v *v) {
  rb_v part[RB_LANES / 2];
  for (int i = 0; i < RB_LANES / 2; ++i) {
    part[i] = rb_fold0(v[2 * i], v[2 * i + 1]);
  }
#if RB_LANES >= 16
  for (int i = 0; i < 4; ++i) {
    part[i] = rb_fold1(part[2 * i], part[2 * i + 1]);
  }
  part[0] = rb_fold2(part[0], part[1]);
  part[1] = rb_fold2(part[2], part[3]);
  return rb_fold3(part[0], part[1]);
#elif RB_LANES >= 8
  part[0] = rb_fold1(part[0], part[1]);
  part[1] = rb_fold1(part[2], part[3]);
  return rb_fold2(part[0], part[1]);
#else
  return rb_fold1(part[0], part[1]);
#endif
}
#endif

/* Half a vector from each of two places. */
#if RB_LANES == 16 && defined(__AVX512DQ__) && defined(__GNUC__) && !defined(__clang__)
typedef float rb_half __attribute__((vector_size(32)));
typedef float rb_half_u __attribute__((vector_size(32), aligned(4), may_alias));
#define RB_JOIN(low, high) __builtin_ia32_broadcastf32x8_512_mask(high, __builtin_ia32_ps512_256ps(low), 0xff00)
#elif RB_LANES == 8 && defined(__AVX__) && defined(__GNUC__) && !defined(__clang__)
typedef float rb_half __attribute__((vector_size(16)));
typedef float rb_half_u __attribute__((vector_size(16), aligned(4), may_alias));
#define RB_JOIN(low, high) __builtin_ia32_vinsertf128_ps256(__builtin_ia32_ps256_ps(low), high, 1)
#endif
#if defined(RB_JOIN)
RB_INLINE rb_v rb_load_halves(const float *low, const float *high) {
  rb_half first = *(const rb_half_u *)(const void *)low, second = *(const rb_half_u *)(const void *)high;
  return RB_JOIN(first, second);
}
#endif

/* Loads p[order[lane]] for each lane. rb_pick has places below RB_LANES only, and p to p + RB_LANES - 1 in memory;
 * rb_pick_halves has places below RB_LANES / 2, for each half from its own first element on. */
RB_INLINE rb_v rb_gather(const float *p, const int32_t *order) {
  rb_v result = rb_splat(0.0f);
  RB_EACH_LANE(result, p[order[lane]]);
  return result;
}
#if RB_LANES > 1 && !defined(__clang__)
RB_INLINE rb_v rb_pick(const float *p, const int32_t *order) {
  rb_m places;
  memcpy(&places, order, sizeof places);
  return __builtin_shuffle(rb_load(p), places);
}
#else
RB_INLINE rb_v rb_pick(const float *p, const int32_t *order) {
  return rb_gather(p, order);
}
#endif

#if RB_LANES > 1
RB_INLINE rb_v rb_pick_halves(const float *p, const int32_t *firsts, const int32_t *order) {
#if defined(RB_JOIN) && RB_LANES == 8
  rb_m places;
  memcpy(&places, order, sizeof places);
  return __builtin_ia32_vpermilvarps256(rb_load_halves(p + firsts[0], p + firsts[1]), places);
#else
  rb_v result = rb_splat(0.0f);
  RB_EACH_LANE(result, p[firsts[lane / (RB_LANES / 2)] + order[lane]]);
  return result;
#endif
}
#endif

/* Transposes a square of RB_LANES vectors in place: squares of four lanes first, then ever larger squares change
 * places.
 */
#if RB_LANES == 1
RB_INLINE void rb_transpose(rb_v *rows) {
  (void)rows;
}
#else
#if RB_LANES == 16
RB_INLINE rb_v rb_low1(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
RB_INLINE rb_v rb_high1(rb_v a, rb_v b) {
  return RB_PICK(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
RB_INLINE rb_v rb_low2(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
RB_INLINE rb_v rb_high2(rb_v a, rb_v b) {
  return RB_PICK(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
RB_INLINE rb_v rb_low4(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
}
RB_INLINE rb_v rb_high4(rb_v a, rb_v b) {
  return RB_PICK(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
}
RB_INLINE rb_v rb_low8(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
}
RB_INLINE rb_v rb_high8(rb_v a, rb_v b) {
  return RB_PICK(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}
#elif RB_LANES == 8
RB_INLINE rb_v rb_low1(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
}
RB_INLINE rb_v rb_high1(rb_v a, rb_v b) {
  return RB_PICK(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}
RB_INLINE rb_v rb_low2(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
}
RB_INLINE rb_v rb_high2(rb_v a, rb_v b) {
  return RB_PICK(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}
RB_INLINE rb_v rb_low4(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
}
RB_INLINE rb_v rb_high4(rb_v a, rb_v b) {
  return RB_PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
#elif RB_LANES == 4
RB_INLINE rb_v rb_low1(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 4, 1, 5);
}
RB_INLINE rb_v rb_high1(rb_v a, rb_v b) {
  return RB_PICK(a, b, 2, 6, 3, 7);
}
RB_INLINE rb_v rb_low2(rb_v a, rb_v b) {
  return RB_PICK(a, b, 0, 1, 4, 5);
}
RB_INLINE rb_v rb_high2(rb_v a, rb_v b) {
  return RB_PICK(a, b, 2, 3, 6, 7);
}
#endif
RB_INLINE void rb_transpose_fours(rb_v *rows, int end) {
  for (int i = 0; i < end; i += 4) {
    rb_v a = rb_low1(rows[i], rows[i + 1]), b = rb_high1(rows[i], rows[i + 1]);
    rb_v c = rb_low1(rows[i + 2], rows[i + 3]), d = rb_high1(rows[i + 2], rows[i + 3]);
    rows[i] = rb_low2(a, c), rows[i + 1] = rb_high2(a, c);
    rows[i + 2] = rb_low2(b, d), rows[i + 3] = rb_high2(b, d);
  }
}
#if RB_LANES >= 8
RB_INLINE void rb_exchange_fours(rb_v *rows, int end) {
  for (int i = 0; i < end; i += i % 4 < 3 ? 1 : 5) {
    rb_v a = rows[i], b = rows[i + 4];
    rows[i] = rb_low4(a, b), rows[i + 4] = rb_high4(a, b);
  }
}
#endif
RB_INLINE void rb_transpose(rb_v *rows) {
  rb_transpose_fours(rows, RB_LANES);
#if RB_LANES >= 8
  rb_exchange_fours(rows, RB_LANES);
#endif
#if RB_LANES >= 16
  for (int i = 0; i < 8; ++i) {
    rb_v a = rows[i], b = rows[i + 8];
    rows[i] = rb_low8(a, b), rows[i + 8] = rb_high8(a, b);
  }
#endif
}
#endif

/* Loads RB_LANES vectors, `step` elements apart, and transposes them. Where a load can fill half a vector, that
 * replaces the exchange of halves: shuffles are what limits it. */
#if defined(RB_JOIN)
RB_INLINE void rb_load_transposed(rb_v *rows, const float *p, ptrdiff_t step) {
  const int half = RB_LANES / 2;
  for (int begin = 0; begin < RB_LANES; begin += half) {
    for (int i = 0; i < half; ++i) {
      rows[begin + i] = rb_load_halves(p + i * step + begin, p + (i + half) * step + begin);
    }
    rb_transpose_fours(rows + begin, half);
#if RB_LANES >= 16
    rb_exchange_fours(rows + begin, half);
#endif
  }
}
#else
RB_INLINE void rb_load_transposed(rb_v *rows, const float *p, ptrdiff_t step) {
  for (int i = 0; i < RB_LANES; ++i) {
    rows[i] = rb_load(p + i * step);
  }
  rb_transpose(rows);
}
#endif

/* Scalars, for code without vectors. */
RB_INLINE float rb_max_f32(float a, float b) {
  return (a > b || a != a) ? a : b;
}
RB_INLINE float rb_min_f32(float a, float b) {
  return (a < b || a != a) ? a : b;
}
RB_INLINE double rb_max_f64(double a, double b) {
  return (a > b || a != a) ? a : b;
}
RB_INLINE double rb_min_f64(double a, double b) {
  return (a < b || a != a) ? a : b;
}
RB_INLINE float rb_floormod_f32(float a, float b) {
  float rest = fmodf(a, b);
  return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}
RB_INLINE double rb_floormod_f64(double a, double b) {
  double rest = fmod(a, b);
  return rest != 0.0 && (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

/* Integers wrap around; a division by zero and its remainder are 0; a shift by the width or more leaves no bit. */
#define RB_UNSIGNED_INTEGERS(name, type, bits)                                                                         \
  RB_INLINE type rb_div_##name(type a, type b) {                                                                       \
    return b == 0 ? 0 : a / b;                                                                                         \
  }                                                                                                                    \
  RB_INLINE type rb_mod_##name(type a, type b) {                                                                       \
    return b == 0 ? 0 : a % b;                                                                                         \
  }                                                                                                                    \
  RB_INLINE type rb_floordiv_##name(type a, type b) {                                                                  \
    return rb_div_##name(a, b);                                                                                        \
  }                                                                                                                    \
  RB_INLINE type rb_floormod_##name(type a, type b) {                                                                  \
    return rb_mod_##name(a, b);                                                                                        \
  }                                                                                                                    \
  RB_INLINE type rb_shl_##name(type a, type b) {                                                                       \
    return b < (bits) ? (type)(a << b) : 0;                                                                            \
  }                                                                                                                    \
  RB_INLINE type rb_shr_##name(type a, type b) {                                                                       \
    return b < (bits) ? (type)(a >> b) : 0;                                                                            \
  }                                                                                                                    \
  RB_INLINE type rb_pow_##name(type a, type b) {                                                                       \
    type result = 1;                                                                                                   \
    for (; b; b >>= 1, a *= a) {                                                                                       \
      result = b & 1 ? result * a : result;                                                                            \
    }                                                                                                                  \
    return result;                                                                                                     \
  }
RB_UNSIGNED_INTEGERS(u32, uint32_t, 32)
RB_UNSIGNED_INTEGERS(u64, uint64_t, 64)

#define RB_SIGNED_INTEGERS(name, type, other, unsigned_type, bits)                                                     \
  RB_INLINE type rb_neg_##name(type a) {                                                                               \
    return (type)(0u - (unsigned_type)a);                                                                              \
  }                                                                                                                    \
  RB_INLINE type rb_div_##name(type a, type b) {                                                                       \
    return b == 0 ? 0 : b == -1 ? rb_neg_##name(a) : a / b;                                                            \
  }                                                                                                                    \
  RB_INLINE type rb_mod_##name(type a, type b) {                                                                       \
    return b == 0 || b == -1 ? 0 : a % b;                                                                              \
  }                                                                                                                    \
  RB_INLINE type rb_floordiv_##name(type a, type b) {                                                                  \
    type rest = rb_mod_##name(a, b);                                                                                   \
    return rb_div_##name(a, b) - (rest != 0 && (rest < 0) != (b < 0));                                                 \
  }                                                                                                                    \
  RB_INLINE type rb_floormod_##name(type a, type b) {                                                                  \
    type rest = rb_mod_##name(a, b);                                                                                   \
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;                                                       \
  }                                                                                                                    \
  RB_INLINE type rb_shl_##name(type a, type b) {                                                                       \
    return b >= 0 && b < (bits) ? (type)((unsigned_type)a << b) : 0;                                                   \
  }                                                                                                                    \
  RB_INLINE type rb_shr_##name(type a, type b) {                                                                       \
    return b >= 0 && b < (bits) ? a >> b : a < 0 ? -1 : 0;                                                             \
  }                                                                                                                    \
  RB_INLINE type rb_pow_##name(type a, type b) {                                                                       \
    if (b < 0) {                                                                                                       \
      return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;                                                              \
    }                                                                                                                  \
    return (type)rb_pow_##other((unsigned_type)a, (unsigned_type)b);                                                   \
  }
RB_SIGNED_INTEGERS(i32, int32_t, u32, uint32_t, 32)
RB_SIGNED_INTEGERS(i64, int64_t, u64, uint64_t, 64)

#endif
