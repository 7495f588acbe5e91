//! What happens in a world, each as a beginning and an event.
