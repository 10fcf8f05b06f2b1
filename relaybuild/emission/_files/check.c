/* Runs the model MODEL, declared in MODEL_HEADER, on numbers that a seed determines, and compares what it gives with a
 * recording: argv[1] has the outputs one after another, as they lie in memory. An output agrees where no element is
 * further off than 1e-4 (float16: 1e-2) of the largest magnitude expected, and 1e-6; integers have to be equal. */
#include MODEL_HEADER

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define DESCRIBE JOINED(MODEL, _describe)
#define CREATE JOINED(MODEL, _create)
#define RUN JOINED(MODEL, _run)
#define DESTROY JOINED(MODEL, _destroy)
#define LAST_ERROR JOINED(MODEL, _last_error)

static size_t elements(const RbTensorInfo *info) {
  size_t count = 1;
  for (int32_t axis = 0; axis < info->ndim; ++axis) {
    count *= (size_t)info->shape[axis];
  }
  return count;
}

static size_t bytes(const RbTensorInfo *info) {
  return elements(info) * (info->dtype.bits / 8u);
}

/* Number `index` of input number `input`. */
static uint64_t drawn(uint64_t input, uint64_t index) {
  uint64_t x = (input + 1) * 0xD1B54A32D192ED03u + (index + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/* float16, of which C need know nothing. The numbers drawn are multiples of 1/1024, which it has exactly. */
static uint16_t half_of(double number) {
  int exponent;
  const double fraction = frexp(fabs(number), &exponent);
  const unsigned sign = number < 0 ? 0x8000u : 0u;
  return number == 0 ? 0 : (uint16_t)(sign | (unsigned)(exponent + 14) << 10 | (unsigned)(fraction * 2048 - 1024));
}

static double value_of(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                           : exponent == 0 ? ldexp(fraction, -24)
                                           : ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

/* Real numbers are in [-1, 1), bytes take all their values, other integers are 0 or 1. */
static void fill(const RbTensorInfo *info, uint64_t input, unsigned char *data) {
  const size_t size = info->dtype.bits / 8u;
  for (size_t index = 0; index < elements(info); ++index) {
    const uint64_t number = drawn(input, index);
    const double real = (double)(number >> 40) / 8388608.0 - 1.0;
    const float single = (float)real;
    uint64_t integer = number >> 63;
    if (info->dtype.code == kDLFloat && size == sizeof(uint16_t)) {
      const uint16_t half = half_of((double)(number >> 53) / 1024.0 - 1.0);
      memcpy(data + index * size, &half, size);
      continue;
    }
    if (info->dtype.code == kDLFloat) {
      memcpy(data + index * size, size == sizeof(double) ? (const void *)&real : (const void *)&single, size);
      continue;
    }
    if (info->dtype.code == kDLUInt && size == 1) {
      integer = number >> 56;
    }
    for (size_t byte = 0; byte < size; ++byte) { /* little-endian, as the recording is */
      data[index * size + byte] = (unsigned char)(integer >> (8 * byte));
    }
  }
}

static double real_at(const RbTensorInfo *info, const unsigned char *data, size_t index) {
  double real;
  float single;
  uint16_t half;
  if (info->dtype.bits == 16) {
    memcpy(&half, data + index * sizeof(half), sizeof(half));
    return value_of(half);
  }
  if (info->dtype.bits == 64) {
    memcpy(&real, data + index * sizeof(real), sizeof(real));
    return real;
  }
  memcpy(&single, data + index * sizeof(single), sizeof(single));
  return (double)single;
}

/* How many outputs differ: 0 or 1. */
static int differs(const RbTensorInfo *info, const unsigned char *found, const unsigned char *expected) {
  double largest = 0, furthest = 0;
  size_t strangers = 0;
  if (info->dtype.code != kDLFloat) {
    strangers = memcmp(found, expected, bytes(info)) != 0;
  } else {
    for (size_t index = 0; index < elements(info); ++index) {
      const double mine = real_at(info, found, index), theirs = real_at(info, expected, index);
      if (!isfinite(mine) || !isfinite(theirs)) {
        strangers += !(mine == theirs || (isnan(mine) && isnan(theirs)));
        continue;
      }
      largest = fmax(largest, fabs(theirs));
      furthest = fmax(furthest, fabs(mine - theirs));
    }
  }
  const double share = info->dtype.bits == 16 ? 1e-2 : 1e-4;
  const int is_wrong = strangers > 0 || furthest > share * largest + 1e-6;
  printf("%s: max abs error %.3g of %.3g: %s\n", info->name, furthest, largest, is_wrong ? "FAILED" : "ok");
  return is_wrong;
}

static void *allocated(size_t size) {
  void *memory = calloc(size ? size : 1, 1);
  if (memory == NULL) {
    fprintf(stderr, "out of memory\n");
    exit(2);
  }
  return memory;
}

static DLTensor *tensors(const RbTensorInfo *infos, int32_t count) {
  DLTensor *made = allocated((size_t)count * sizeof(DLTensor));
  for (int32_t i = 0; i < count; ++i) {
    made[i] = rb_tensor(&infos[i], allocated(bytes(&infos[i])));
  }
  return made;
}

static DLTensor **pointers(DLTensor *list, int32_t count) {
  DLTensor **made = allocated((size_t)count * sizeof(DLTensor *));
  for (int32_t i = 0; i < count; ++i) {
    made[i] = &list[i];
  }
  return made;
}

int main(int argc, char **argv) {
  const RbModelInfo *info = DESCRIBE();
  FILE *recording = argc > 1 ? fopen(argv[1], "rb") : NULL;
  RbInstance *instance;
  int failures = 0;
  if (recording == NULL) {
    fprintf(stderr, "expected the file of a recording\n");
    return 2;
  }
  DLTensor *inputs = tensors(info->inputs, info->num_inputs), *outputs = tensors(info->outputs, info->num_outputs);
  for (int32_t i = 0; i < info->num_inputs; ++i) {
    fill(&info->inputs[i], (uint64_t)i, inputs[i].data);
  }
  if (CREATE(0, &instance) || RUN(instance, (const DLTensor *const *)pointers(inputs, info->num_inputs),
                                  info->num_inputs, pointers(outputs, info->num_outputs), info->num_outputs)) {
    fprintf(stderr, "%s\n", LAST_ERROR());
    return 2;
  }
  DESTROY(instance);
  for (int32_t i = 0; i < info->num_outputs; ++i) {
    unsigned char *expected = allocated(bytes(&info->outputs[i]));
    if (fread(expected, 1, bytes(&info->outputs[i]), recording) != bytes(&info->outputs[i])) {
      fprintf(stderr, "the recording is too short\n");
      return 2;
    }
    failures += differs(&info->outputs[i], outputs[i].data, expected);
  }
  return failures > 0;
}
