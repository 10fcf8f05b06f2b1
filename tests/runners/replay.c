/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs models' libraries through the C interface: replay FILE, whose lines are LIBRARY THREADS INPUTS VARIABLE=VALUE...
 * It knows no model and no expected result.
 *
 * INPUTS is a file of the inputs' bytes, one input behind the other. Each library runs on NaNs first and then on its
 * inputs, in a process of its own. Of each, a line is printed (status, target, number of bytes), and then as many
 * bytes: the outputs, or the sentence of an error. A negative status is the signal that ended the process. */
#include "relaybuild/model.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_LINE = 4096, MAX_PATH = 512, MAX_TENSORS = 4096, ALIGNMENT = 64 };

typedef struct Job {
  char library[MAX_PATH], inputs[MAX_PATH];
  int threads;
} Job;

typedef struct Tensors {
  int32_t count;
  DLTensor tensors[MAX_TENSORS];
  DLTensor *pointers[MAX_TENSORS];
} Tensors;

static size_t bytes_of(const DLTensor *tensor) {
  size_t bytes = (tensor->dtype.bits * tensor->dtype.lanes + 7u) / 8u;
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    bytes *= (size_t)tensor->shape[i];
  }
  return bytes;
}

static void make(Tensors *made, const RbTensorInfo *infos, int32_t count) {
  if (count > MAX_TENSORS) {
    exit(2);
  }
  made->count = count;
  for (int32_t i = 0; i < count; ++i) {
    DLTensor tensor = rb_tensor(&infos[i], NULL);
    const size_t size = (bytes_of(&tensor) / ALIGNMENT + 1) * ALIGNMENT;
    tensor.data = aligned_alloc(ALIGNMENT, size);
    memset(tensor.data, 0, size);
    made->tensors[i] = tensor;
    made->pointers[i] = &made->tensors[i];
  }
}

static void fill_with_nans(Tensors *inputs) {
  for (int32_t i = 0; i < inputs->count; ++i) {
    const DLTensor *tensor = &inputs->tensors[i];
    memset(tensor->data, tensor->dtype.code == kDLFloat ? 0xff : 0, bytes_of(tensor));
  }
}

static void fill_from(Tensors *inputs, const char *path) {
  FILE *file = fopen(path, "rb");
  for (int32_t i = 0; i < inputs->count; ++i) {
    const size_t size = bytes_of(&inputs->tensors[i]);
    if (!file || fread(inputs->tensors[i].data, 1, size, file) != size) {
      fprintf(stderr, "%s: too short\n", path);
      exit(2);
    }
  }
  fclose(file);
}

static void answer(RbStatus status, const char *target, const char *text) {
  printf("%d %s %zu\n%s", (int)status, target, strlen(text), text);
}

static void answer_with(const Tensors *outputs, const char *target) {
  size_t size = 0;
  for (int32_t i = 0; i < outputs->count; ++i) {
    size += bytes_of(&outputs->tensors[i]);
  }
  printf("0 %s %zu\n", target, size);
  for (int32_t i = 0; i < outputs->count; ++i) {
    fwrite(outputs->tensors[i].data, 1, bytes_of(&outputs->tensors[i]), stdout);
  }
}

static RbStatus run(const RbModelApi *api, RbInstance *instance, Tensors *inputs, Tensors *outputs) {
  return api->run(instance, (const DLTensor *const *)inputs->pointers, inputs->count, outputs->pointers,
                  outputs->count);
}

static void run_job(const Job *job) {
  static Tensors inputs, outputs;
  void *library = dlopen(job->library, RTLD_NOW);
  if (!library) {
    answer(RB_ERROR_INTERNAL, "?", dlerror());
    return;
  }
  const RbModelApi *api = ((RbModelEntry)dlsym(library, RELAYBUILD_MODEL_ENTRY))();
  const RbModelInfo *info = api->describe();
  RbInstance *instance = NULL;
  RbStatus status = api->create(job->threads, &instance);
  if (!status) {
    make(&inputs, info->inputs, info->num_inputs);
    make(&outputs, info->outputs, info->num_outputs);
    fill_with_nans(&inputs);
    status = run(api, instance, &inputs, &outputs);
  }
  if (!status) {
    fill_from(&inputs, job->inputs);
    status = run(api, instance, &inputs, &outputs);
  }
  if (status) {
    answer(status, info->target, api->last_error());
  } else {
    answer_with(&outputs, info->target);
  }
  api->destroy(instance);
}

/* A job from its line; the variables are those of this process from now on. */
static Job job_of(char *line) {
  Job job = {{0}, {0}, 0};
  int end = 0;
  if (sscanf(line, "%511s %d %511s%n", job.library, &job.threads, job.inputs, &end) != 3) {
    exit(2);
  }
  for (char *word = strtok(line + end, " \n"); word; word = strtok(NULL, " \n")) {
    putenv(word);
  }
  return job;
}

int main(int argc, char **argv) {
  static char line[MAX_LINE];
  FILE *jobs = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (!jobs) {
    return 2;
  }
  while (fgets(line, sizeof line, jobs)) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      const Job job = job_of(line);
      run_job(&job);
      fflush(stdout);
      _exit(0);
    }
    int ended = 0;
    if (waitpid(child, &ended, 0) != child) {
      return 2;
    }
    if (WIFSIGNALED(ended)) {
      printf("%d ? 0\n", -WTERMSIG(ended));
    } else if (WEXITSTATUS(ended)) {
      return 2;
    }
  }
  return 0;
}
