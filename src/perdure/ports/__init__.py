"""What Perdure needs from the world: protocols only. Adapters live in `stores` and the like and never import each other."""
