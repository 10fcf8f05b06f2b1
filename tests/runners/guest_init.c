/* SPDX-License-Identifier: Apache-2.0
 *
 * The first program of an emulated machine: runs the command in /command in the folder /work, tells of it through
 * Bochs' debug port, and switches the machine off. It knows nothing of what it runs.
 *
 * It tells frames: a letter (o and e are the command's two outputs, x its end), a length of four bytes, bytes. /command
 * and /environ hold words, each with a zero behind it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEBUG_PORT = 0xe9, OFF_PORT = 0x8900, MAX_WORDS = 256, PIECE = 1 << 16 };
static const char MAGIC[] = "\nrelaybuild guest\n";

static void tell_bytes(const void *data, size_t size) {
  __asm__ volatile("rep outsb" : "+S"(data), "+c"(size) : "d"(DEBUG_PORT) : "memory");
}

static void tell(char kind, const void *data, uint32_t size) {
  tell_bytes(&kind, 1);
  tell_bytes(&size, sizeof size);
  tell_bytes(data, size);
}

static _Noreturn void off(void) {
  for (const char *at = "Shutdown"; *at; ++at) {
    outb((unsigned char)*at, OFF_PORT);
  }
  for (;;) {
    pause();
  }
}

static _Noreturn void fail(const char *what) {
  char text[256];
  const int size = snprintf(text, sizeof text, "init: %s: %s\n", what, strerror(errno));
  tell('e', text, (uint32_t)size);
  off();
}

/* The words of a file, NULL behind the last; they are never freed. */
static char **words_of(const char *path) {
  static char *found[2][MAX_WORDS + 1];
  static int file;
  char **words = found[file++];
  struct stat about;
  const int in = open(path, O_RDONLY);
  if (in < 0 || fstat(in, &about)) {
    fail(path);
  }
  char *text = calloc(1, (size_t)about.st_size + 1);
  if (!text || read(in, text, (size_t)about.st_size) != about.st_size) {
    fail(path);
  }
  int count = 0;
  for (char *at = text; at < text + about.st_size && count < MAX_WORDS; at += strlen(at) + 1) {
    words[count++] = at;
  }
  close(in);
  return words;
}

static _Noreturn void become(char **command, char **environ, int out, int err) {
  dup2(out, 1);
  dup2(err, 2);
  if (chdir("/work") == 0) {
    execve(command[0], command, environ);
  }
  dprintf(2, "%s: %s\n", command[0], strerror(errno));
  _exit(127);
}

/* Tells what comes out of two pipes until both are closed. */
static void forward(int out, int err) {
  static char piece[PIECE];
  struct pollfd pipes[] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  for (int open = 2; open;) {
    if (poll(pipes, 2, -1) < 0) {
      fail("poll");
    }
    for (int i = 0; i < 2; ++i) {
      if (!pipes[i].revents) {
        continue;
      }
      const ssize_t size = read(pipes[i].fd, piece, sizeof piece);
      if (size > 0) {
        tell("oe"[i], piece, (uint32_t)size);
      } else {
        pipes[i].fd = -1;
        --open;
      }
    }
  }
}

int main(void) {
  if (iopl(3)) {
    return 1; /* the kernel says so, and stops */
  }
  tell_bytes(MAGIC, sizeof MAGIC - 1);
  mount("proc", "/proc", "proc", 0, NULL);
  mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
  char **command = words_of("/command"), **environ = words_of("/environ");
  int out[2], err[2];
  if (pipe(out) || pipe(err)) {
    fail("pipe");
  }
  const pid_t child = fork();
  if (child == 0) {
    become(command, environ, out[1], err[1]);
  }
  close(out[1]);
  close(err[1]);
  forward(out[0], err[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child) {
    fail("waitpid");
  }
  const int32_t code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  tell('x', &code, sizeof code);
  off();
}
