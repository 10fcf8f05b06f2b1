/* SPDX-License-Identifier: Apache-2.0
 *
 * What one core can do, and how long one call of a kernel takes. Knows nothing of what kernels compute; compiled with
 * their flags and -DRB_LANES, so that it has their vectors. */
#include "relaybuild/vector.h"

#include <time.h>

#define BENCH_EXPORT __attribute__((visibility("default")))
#define CHAINS 12 /* independent multiply-adds: more than latency times units, fewer than registers */
#define STREAMS 8
#define BLOCK_SECONDS 20e-6 /* a block of calls shorter than this is dominated by the clock */

typedef void (*BenchCall)(const void *const *reads, void *write, void *scratch);

extern const BenchCall bench_calls[];

BENCH_EXPORT double bench_fma_peak(double seconds);
BENCH_EXPORT double bench_bandwidth(int kind, float *data, size_t bytes, double seconds);
BENCH_EXPORT int bench_time(int number, const void *const *reads, void *write, void *scratch, double seconds, int most,
                            double *times);

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static volatile rb_v sink; /* what is stored here is not optimised away */

/* Best floating-point operations a second, two for a multiply-add. */
double bench_fma_peak(double seconds) {
  enum { STEPS = 4000 };
  static volatile float factor = 0.9999f, term = 1e-4f;
  double best = 1e9;
  const double end = now() + seconds;
  do {
    const rb_v a = rb_splat(factor), b = rb_splat(term);
    rb_v acc[CHAINS];
    for (int i = 0; i < CHAINS; ++i) {
      acc[i] = rb_splat((float)i);
    }
    const double begin = now();
    for (int step = 0; step < STEPS; ++step) {
#pragma GCC unroll 12
      for (int i = 0; i < CHAINS; ++i) {
        acc[i] = acc[i] * a + b;
      }
    }
    const double took = now() - begin;
    best = took < best ? took : best;
    for (int i = 0; i < CHAINS; ++i) {
      sink = acc[i];
    }
  } while (now() < end);
  return 2.0 * CHAINS * RB_LANES * STEPS / best;
}

static void read_all(const float *data, size_t count) {
  rb_v sum[STREAMS];
  for (int i = 0; i < STREAMS; ++i) {
    sum[i] = rb_splat(0.0f);
  }
  for (size_t at = 0; at < count; at += STREAMS * RB_LANES) {
#pragma GCC unroll 8
    for (int i = 0; i < STREAMS; ++i) {
      sum[i] += rb_load(data + at + i * RB_LANES);
    }
  }
  for (int i = 1; i < STREAMS; ++i) {
    sum[0] += sum[i];
  }
  sink = sum[0];
}

static void write_all(float *data, size_t count, rb_v value) {
  for (size_t at = 0; at < count; at += STREAMS * RB_LANES) {
#pragma GCC unroll 8
    for (int i = 0; i < STREAMS; ++i) {
      rb_store(data + at + i * RB_LANES, value);
    }
  }
}

static void scale_all(const float *restrict from, float *restrict to, size_t count, rb_v factor) {
  for (size_t at = 0; at < count; at += STREAMS * RB_LANES) {
#pragma GCC unroll 8
    for (int i = 0; i < STREAMS; ++i) {
      rb_store(to + at + i * RB_LANES, rb_load(from + at + i * RB_LANES) * factor);
    }
  }
}

static void pass(int kind, float *data, size_t count, rb_v value) {
  if (kind == 0) {
    read_all(data, count);
  } else if (kind == 1) {
    write_all(data, count, value);
  } else {
    scale_all(data, data + count / 2, count / 2, value);
  }
}

/* Best bytes a second over `bytes` of memory again and again: kind 0 reads them, 1 writes them, 2 reads one half and
 * writes the other (both count). `bytes` is a multiple of 1024 times the lanes. */
double bench_bandwidth(int kind, float *data, size_t bytes, double seconds) {
  static volatile float one = 1.0f;
  const rb_v value = rb_splat(one);
  const size_t count = bytes / sizeof(float);
  double best = 1e9;
  pass(kind, data, count, value);
  const double start = now();
  pass(kind, data, count, value);
  const double once = now() - start;
  const int repeats = once < BLOCK_SECONDS ? (int)(BLOCK_SECONDS / (once + 1e-9)) + 1 : 1;
  const double end = now() + seconds;
  do {
    const double begin = now();
    for (int i = 0; i < repeats; ++i) {
      pass(kind, data, count, value);
    }
    const double took = (now() - begin) / repeats;
    best = took < best ? took : best;
  } while (now() < end);
  return (double)bytes / best;
}

/* Seconds of a call, of at least three and at most `most` blocks of calls within about `seconds`; returns how many. */
int bench_time(int number, const void *const *reads, void *write, void *scratch, double seconds, int most,
               double *times) {
  const BenchCall call = bench_calls[number];
  call(reads, write, scratch);
  const double start = now();
  call(reads, write, scratch);
  const double once = now() - start;
  const int repeats = once < BLOCK_SECONDS ? (int)(BLOCK_SECONDS / (once + 1e-9)) + 1 : 1;
  const double end = now() + seconds;
  int done = 0;
  while (done < most && (done < 3 || now() < end)) {
    const double begin = now();
    for (int i = 0; i < repeats; ++i) {
      call(reads, write, scratch);
    }
    times[done++] = (now() - begin) / repeats;
  }
  return done;
}
